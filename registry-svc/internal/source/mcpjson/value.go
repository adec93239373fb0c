package mcpjson

import (
	"fmt"

	"github.com/writ-dev/writ/internal/rawjson"
)

// str reads a string; anything else is a problem and gives "".
func (x *entryReader) str(field string, f member) string {
	if t := rawjson.TypeOf(f.Value); t != rawjson.Str {
		x.add(field, f.at, "is "+t.String()+".", "Write a string.")
		return ""
	}
	s, err := rawjson.String(f.Value)
	if err != nil {
		x.unreadable(f.Value, x.entry.Name, field, err)
	}
	return s
}

func (x *entryReader) strs(f member) []string {
	if t := rawjson.TypeOf(f.Value); t != rawjson.Array {
		x.add(f.Name, f.at, "is "+t.String()+".", "Write an array of strings.")
		return nil
	}
	out := []string{}
	for raw, err := range rawjson.Elements(f.Value) {
		if err != nil {
			x.unreadable(f.Value, x.entry.Name, f.Name, err)
			return nil
		}
		field := fmt.Sprintf("%s[%d]", f.Name, len(out))
		at := x.offset(raw)
		x.fields[field] = at
		out = append(out, x.str(field, member{rawjson.Member{Value: raw}, at}))
	}
	return out
}

func (x *entryReader) env(f member) map[string]string {
	if t := rawjson.TypeOf(f.Value); t != rawjson.Object {
		x.add(f.Name, f.at, "is "+t.String()+".", "Write an object of strings.")
		return nil
	}
	members, ok := x.members(f.Value, x.entry.Name, f.Name)
	if !ok {
		return nil
	}
	out := make(map[string]string, len(members))
	for _, m := range members {
		field := f.Name + "." + m.Name
		x.fields[field] = m.at
		out[m.Name] = x.str(field, m)
	}
	return out
}

func (x *entryReader) boolean(f member) bool {
	b, err := rawjson.Boolean(f.Value)
	if err != nil {
		x.add(f.Name, f.at, "is "+rawjson.TypeOf(f.Value).String()+".", "Write true or false.")
	}
	return b
}

// idle reads the idle timeout; 0 in the file disables it (R61).
func (x *entryReader) idle(f member) {
	n, err := rawjson.Int64(f.Value)
	switch {
	case err != nil:
		x.add(f.Name, f.at, "is no whole number of seconds.", "Write for example 300; 0 means never.")
	case n < 0 || n > 604800:
		x.add(f.Name, f.at, fmt.Sprintf("is %d.", n), "Use 1 to 604800 seconds, or 0 for never.")
	case n == 0:
		x.entry.Spec.IdleSeconds = -1
	default:
		x.entry.Spec.IdleSeconds = int32(n)
	}
}

// accepted reads the provider digest for which a person accepted to go without isolation.
func (x *entryReader) accepted(f member) {
	digest := x.str(f.Name, f)
	if !digestPattern.MatchString(digest) {
		if rawjson.TypeOf(f.Value) == rawjson.Str {
			x.add(f.Name, f.at, "is no provider digest.", "Write the 64 hex digits that `writ connector test` shows.")
		}
		return
	}
	x.entry.Spec.AcceptHost, x.entry.Spec.AcceptedFor = true, digest
}

// suggest names the known word that is nearest to what was written, where one is near.
func suggest(word string, words []string) string {
	best, distance := "", 3
	for _, w := range words {
		if d := edits(word, w); d < distance {
			best, distance = w, d
		}
	}
	if best == "" || best == word {
		return ""
	}
	return " Did you mean \"" + best + "\"?"
}

// edits is the Levenshtein distance, as far as it matters here: words of very different length are far apart.
func edits(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
