// Package config reads settings: flags over environment over a YAML file over defaults.
//
// It is strict. A key that is not known, one that stands twice and a value of the wrong kind are errors that name file,
// line and key; all of them are found in one go. What a file sets is known afterwards by its origin.
package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxFile bounds a configuration file. Bytes.
const maxFile = 1 << 20

// Options say where settings come from.
type Options struct {
	// File is a YAML file. Empty: none.
	File string
	// Required makes a File that is not there an error.
	Required bool
	// Prefix makes the variable of a key: with "WRIT_" the key listen.grpc is WRIT_LISTEN_GRPC. Empty: no environment.
	Prefix string
	// Env looks a variable up. Nil: os.LookupEnv.
	Env func(name string) (string, bool)
	// Flags are values by key ("listen.grpc"), as text.
	Flags map[string]string
}

// Origin is where a setting comes from.
type Origin struct {
	Kind  string // "default", "file", "environment", "flag"
	Place string // "/home/x/.writ/writ.yaml:7", "WRIT_LISTEN_GRPC", "listen.grpc", "" for a default
	Line  int    // in a file
}

// Problem is one mistake in the settings.
type Problem struct {
	Place   string // as in Origin
	Key     string
	Message string
}

// String is the problem for a person.
func (p Problem) String() string {
	s := p.Message
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	if p.Place != "" {
		s = p.Place + ": " + s
	}
	return s
}

// Error is everything that is wrong with the settings.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Loaded remembers where the settings came from.
type Loaded struct {
	root     reflect.Value
	origins  map[string]Origin
	problems []Problem
}

// Load fills into, a pointer to a struct that holds the defaults. Keys are the `yaml` tags of its fields, joined by dots.
// The error is an *Error.
func Load(into any, opts Options) (*Loaded, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	l := &Loaded{root: reflect.ValueOf(into).Elem(), origins: map[string]Origin{}}
	l.file(opts)
	leaves := l.leaves()
	l.environment(opts, leaves)
	l.flags(opts, leaves)
	return l, l.err()
}

// Origin of a key's value. A key inside a list or a map has the origin of its own line where it came from a file.
func (l *Loaded) Origin(key string) Origin {
	if o, ok := l.origins[key]; ok {
		return o
	}
	return Origin{Kind: "default"}
}

// Wrong makes the error of a setting that is well-formed and still can't be meant; it names the place as Load does.
func (l *Loaded) Wrong(key, message string) error {
	return &Error{Problems: []Problem{{Place: l.Origin(key).Place, Key: key, Message: message}}}
}

// Setting is one line of `writ config show`.
type Setting struct {
	Key    string
	Value  string
	Origin Origin
}

// Settings lists every key with its value and origin, ordered by key. Values of fields that are tagged `secret:"true"`
// are left out.
func (l *Loaded) Settings() (out []Setting) {
	for _, f := range l.leaves() {
		value := show(f.value)
		if f.secret && value != "" {
			value = "(hidden)"
		}
		origin := l.Origin(f.key)
		if origin.Kind == "default" {
			origin = l.within(f.key)
		}
		out = append(out, Setting{Key: f.key, Value: value, Origin: origin})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}

// within is the origin of the first key below key.
func (l *Loaded) within(key string) Origin {
	best := Origin{Kind: "default"}
	for k, o := range l.origins {
		if strings.HasPrefix(k, key+".") && (best.Kind == "default" || o.Line < best.Line) {
			best = o
		}
	}
	return best
}

func (l *Loaded) err() error {
	if len(l.problems) == 0 {
		return nil
	}
	return &Error{Problems: l.problems}
}

func (l *Loaded) problem(place, key, format string, args ...any) {
	l.problems = append(l.problems, Problem{Place: place, Key: key, Message: fmt.Sprintf(format, args...)})
}

func (l *Loaded) file(opts Options) {
	if opts.File == "" {
		return
	}
	f, err := os.Open(opts.File)
	if errors.Is(err, os.ErrNotExist) && !opts.Required {
		return
	}
	if err != nil {
		l.problem(opts.File, "", "can't be read: %v", err)
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(text) > maxFile {
		l.problem(opts.File, "", "can't be read, or is larger than %d bytes", maxFile)
		return
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return // an empty file sets nothing
	} else if err != nil {
		l.problem(opts.File, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		l.problem(opts.File, "", "holds more than one document")
		return
	}
	d := decoder{loaded: l, file: opts.File}
	d.decode(doc.Content[0], l.root, "")
}

func (l *Loaded) environment(opts Options, leaves []leaf) {
	if opts.Prefix == "" {
		return
	}
	for _, f := range leaves {
		name := opts.Prefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
		text, ok := opts.Env(name)
		if !ok || !f.scalar {
			continue
		}
		if err := set(f.value, text); err != nil {
			l.problem(name, f.key, "%v", err)
			continue
		}
		l.origins[f.key] = Origin{Kind: "environment", Place: name}
	}
}

func (l *Loaded) flags(opts Options, leaves []leaf) {
	keys := make([]string, 0, len(opts.Flags))
	for key := range opts.Flags {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		i := slices.IndexFunc(leaves, func(f leaf) bool { return f.key == key && f.scalar })
		if i < 0 {
			l.problem("flag", key, "is no setting that takes one value")
			continue
		}
		if err := set(leaves[i].value, opts.Flags[key]); err != nil {
			l.problem("flag", key, "%v", err)
			continue
		}
		l.origins[key] = Origin{Kind: "flag", Place: key}
	}
}

// leaf is a setting: a field that is no struct of further settings.
type leaf struct {
	key    string
	value  reflect.Value
	scalar bool // a value that fits into a line of text
	secret bool
}

func (l *Loaded) leaves() (out []leaf) {
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := tagOf(f)
			if name == "" {
				continue
			}
			if isGroup(f.Type) {
				walk(v.Field(i), prefix+name+".")
				continue
			}
			out = append(out, leaf{prefix + name, v.Field(i), isScalar(f.Type), f.Tag.Get("secret") == "true"})
		}
	}
	walk(l.root, "")
	return out
}

func tagOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "-" {
		return ""
	}
	return name
}

func isGroup(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isText(t) }

// show is a value as one line.
func show(v reflect.Value) string {
	switch {
	case v.IsZero():
		return ""
	case isScalar(v.Type()) && v.Kind() != reflect.Slice:
		return fmt.Sprint(v.Interface())
	case v.Kind() == reflect.Slice && isScalar(v.Type()):
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = fmt.Sprint(v.Index(i).Interface())
		}
		return strings.Join(parts, ",")
	default:
		return strconv.Itoa(v.Len()) + " entries"
	}
}
