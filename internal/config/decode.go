package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// decoder puts YAML into Go values and notes every mistake instead of stopping at the first.
type decoder struct {
	loaded *Loaded
	file   string
}

func (d decoder) place(n *yaml.Node) string { return fmt.Sprintf("%s:%d", d.file, n.Line) }

func (d decoder) wrong(n *yaml.Node, key, format string, args ...any) {
	d.loaded.problem(d.place(n), key, format, args...)
}

func (d decoder) decode(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.wrong(n, key, "anchors and aliases are not used here")
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // a key without a value leaves the default
	}
	if key != "" {
		d.loaded.origins[key] = Origin{Kind: "file", Place: d.place(n), Line: n.Line}
	}
	switch {
	case isText(v.Type()) || v.Kind() != reflect.Struct && v.Kind() != reflect.Map && v.Kind() != reflect.Slice:
		d.scalar(n, v, key)
	case v.Kind() == reflect.Struct:
		d.fields(n, v, key)
	case v.Kind() == reflect.Map:
		d.entries(n, v, key)
	default:
		d.items(n, v, key)
	}
}

func (d decoder) scalar(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.ScalarNode {
		d.wrong(n, key, "is %s, one value is needed", kindName(n))
		return
	}
	if v.Kind() == reflect.String && !isText(v.Type()) && n.Tag != "!!str" && n.Style == 0 {
		// yes, 1.10 and 2026-01-01 are no text to YAML; as text they would not be what the writer sees.
		d.wrong(n, key, "%s is not text; put it in quotes", n.Value)
		return
	}
	if err := set(v, n.Value); err != nil {
		d.wrong(n, key, "%v", err)
	}
}

// pairs walks a mapping, and finds what it says twice.
func (d decoder) pairs(n *yaml.Node, key string, each func(name string, k, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, key, "is %s, keys with values are needed", kindName(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			d.wrong(k, key, "a key must be one word")
			continue
		}
		if line, twice := seen[k.Value]; twice {
			d.wrong(k, join(key, k.Value), "stands twice, first in line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		each(k.Value, k, n.Content[i+1])
	}
}

func (d decoder) fields(n *yaml.Node, v reflect.Value, key string) {
	byName := map[string]reflect.Value{}
	var names []string
	for i := range v.NumField() {
		if name := tagOf(v.Type().Field(i)); name != "" {
			byName[name] = v.Field(i)
			names = append(names, name)
		}
	}
	d.pairs(n, key, func(name string, k, value *yaml.Node) {
		field, ok := byName[name]
		if !ok {
			d.wrong(k, join(key, name), "is not known%s", nearest(name, names))
			return
		}
		d.decode(value, field, join(key, name))
	})
}

func (d decoder) entries(n *yaml.Node, v reflect.Value, key string) {
	m := reflect.MakeMap(v.Type())
	d.pairs(n, key, func(name string, _, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, item, join(key, name))
		m.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), item)
	})
	v.Set(m)
}

func (d decoder) items(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, key, "is %s, a list is needed", kindName(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.decode(item, list.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
	v.Set(list)
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a group of keys"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "one value"
	}
}

// nearest suggests the known name that is at most two changes away.
func nearest(name string, names []string) string {
	best, distance := "", 3
	for _, candidate := range names {
		if d := changes(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return "; known are " + strings.Join(names, ", ")
	}
	return "; did you mean " + best + "?"
}

// changes is the edit distance of two short words.
func changes(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// isText tells whether a type reads and writes itself as text.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func isScalar(t reflect.Type) bool {
	if isText(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return false
	case reflect.Slice:
		return t.Elem().Kind() == reflect.String
	}
	return true
}

// set puts text into a scalar. A list of words is separated by commas.
func set(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is no duration; write it like 30s, 5m or 24h", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		v.SetFloat(f)
	case reflect.Slice:
		var words []string
		if text != "" {
			words = strings.Split(text, ",")
		}
		v.Set(reflect.ValueOf(words).Convert(v.Type()))
	default:
		return errors.New("can't be set by one value")
	}
	return nil
}

// Quantity is a limit: a count, a size such as 64KiB, or, for limits in time, a duration such as 30s.
type Quantity struct {
	// N is the count, or the size in bytes.
	N int64
	// Duration is set instead of N for a duration.
	Duration time.Duration
}

// UnmarshalText reads a count, a size or a duration. None is negative.
func (q *Quantity) UnmarshalText(b []byte) error {
	text := string(b)
	for suffix, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil || n < 0 || n > (1<<62)/factor {
				return fmt.Errorf("%q is no size", text)
			}
			q.N = n * factor
			return nil
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		q.N = n
		return nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		q.Duration = d
		return nil
	}
	return fmt.Errorf("%q is no limit; write a count like 100, a size like 64KiB or a time like 30s", text)
}

// String is the quantity as it is written.
func (q Quantity) String() string {
	if q.Duration != 0 {
		return q.Duration.String()
	}
	return strconv.FormatInt(q.N, 10)
}
