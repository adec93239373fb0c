// Package mcpjson reads mcp.json, the file in which people write down MCP servers, in its three shapes:
//
//	{"servers": {NAME: ENTRY}, "inputs": […]}    the source's own, and VS Code's
//	{"mcpServers": {NAME: ENTRY}}                Claude's, Cursor's and the Agent Plugins' one
//	{NAME: ENTRY}                                flat
//
// It is strict, since a typo that is passed over changes what is started (R16): what is not known is a problem with
// file, entry, field and place, and an entry with a problem is kept out. All problems are found in one reading.
package mcpjson

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
)

// MaxBytes is the size of a file that is read (mcp_json_max_bytes).
const MaxBytes = 1 << 20

// Problem is one thing that is wrong with a file.
type Problem struct {
	File     string
	Line     int // from 1
	Column   int // from 1, in characters
	Entry    string
	Field    string // within the entry, or of the file where Entry is empty
	Variable string // the variable that nobody bound, empty for other problems
	Text     string // what is wrong
	Next     string // what to do
}

// String is the problem for a person: place, entry, field, what is wrong, what to do.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Variable != "" {
		b.WriteString("VARIABLE_NOT_BOUND: ")
	}
	if p.Entry != "" {
		fmt.Fprintf(&b, "%s: ", show(p.Entry))
	}
	if p.Field != "" {
		fmt.Fprintf(&b, "%s: ", show(p.Field))
	}
	fmt.Fprintf(&b, "%s %s", p.Text, p.Next)
	return b.String()
}

// show makes foreign text visible and harmless on a terminal.
func show(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	for _, r := range s {
		if r < 0x20 || r > 0x7e {
			return fmt.Sprintf("%+q", s)
		}
	}
	return s
}

// Entry is one server of a file.
type Entry struct {
	Name     string
	Spec     connector.Spec // as written, variables unexpanded
	Enabled  bool
	Place    string    // file and key, for people
	Problems []Problem // any: the entry is kept out
}

// File is what a reading found.
type File struct {
	Entries  []Entry   // in the order of the file
	Problems []Problem // of the file and of every entry, in the order of the file
}

// Read reads content, the bytes of the file path. bound holds the variables that a human bound: connector, variable,
// value. It never fails: what is wrong is in the result.
func Read(path string, content []byte, bound map[string]map[string]string) File {
	r := &reader{path: path, text: content[:len(content):len(content)], bound: bound}
	if len(content) > MaxBytes {
		r.fileProblem(0, "", fmt.Sprintf("the file has %d bytes, mcp_json_max_bytes is %d.", len(content), MaxBytes), "Remove what is not needed.")
		return r.file
	}
	if top, ok := r.members(r.text, "", ""); ok {
		r.servers(top)
	}
	return r.file
}

type reader struct {
	path  string
	text  []byte
	bound map[string]map[string]string
	file  File
}

// member is a name and value with the place of the value in the file.
type member struct {
	rawjson.Member
	at int
}

// members reads an object. Duplicate names are handed out as they stand.
func (r *reader) members(raw []byte, entry, field string) ([]member, bool) {
	var out []member
	for m, err := range rawjson.Members(raw) {
		if err != nil {
			r.unreadable(raw, entry, field, err)
			return nil, false
		}
		out = append(out, member{m, r.offset(m.Value)})
	}
	return out, true
}

// offset is where a sub-slice of the text begins in it. A sub-slice ends its capacity where the text does.
func (r *reader) offset(sub []byte) int { return len(r.text) - cap(sub) }

func (r *reader) unreadable(raw []byte, entry, field string, err error) {
	at, text := r.offset(raw), err.Error()
	next := "Correct the JSON; comments and trailing commas are no JSON."
	if e, ok := err.(*rawjson.Error); ok {
		at += e.Offset
		text = e.Kind.String()
		if e.Detail != "" {
			text += ": " + e.Detail
		}
		if e.Kind == rawjson.DuplicateName {
			next = "Remove one of the two."
		}
		if e.Path != "" {
			text += " in " + show(e.Path)
		}
	}
	r.problem(Problem{Entry: entry, Field: field, Text: text + ".", Next: next}, at)
}

func (r *reader) fileProblem(at int, field, text, next string) {
	r.problem(Problem{Field: field, Text: text, Next: next}, at)
}

func (r *reader) problem(p Problem, at int) {
	p.File = r.path
	p.Line, p.Column = position(r.text, at)
	r.file.Problems = append(r.file.Problems, p)
}

// position is line and column of a byte, both from 1; the column counts characters.
func position(text []byte, at int) (line, column int) {
	before := text[:min(max(at, 0), len(text))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:])
}

// servers finds the shape and reads its entries.
func (r *reader) servers(top []member) {
	shape, object := "", []member(nil)
	for _, m := range top {
		if m.Name != "servers" && m.Name != "mcpServers" {
			continue
		}
		if shape != "" {
			r.fileProblem(m.at, m.Name, fmt.Sprintf("stands beside %q; it is not clear which of the two counts.", shape), "Keep one of them.")
			return
		}
		shape = m.Name
		inner, ok := r.object(m)
		if !ok {
			return
		}
		object = inner
	}
	if shape == "" {
		r.entries("", without(top, "$schema"))
		return
	}
	for _, m := range top {
		switch {
		case m.Name == shape, m.Name == "$schema":
		case m.Name == "inputs":
			if rawjson.TypeOf(m.Value) != rawjson.Array {
				r.fileProblem(m.at, "inputs", "is "+rawjson.TypeOf(m.Value).String()+".", "Write an array.")
			}
		default:
			r.fileProblem(m.at, m.Name, "is not known beside \""+shape+"\"."+suggest(m.Name, []string{"servers", "mcpServers", "inputs"}), "Remove it.")
		}
	}
	r.entries(shape+".", object)
}

func (r *reader) object(m member) ([]member, bool) {
	if t := rawjson.TypeOf(m.Value); t != rawjson.Object {
		r.fileProblem(m.at, m.Name, "is "+t.String()+".", "Write an object with one member for each server.")
		return nil, false
	}
	return r.members(m.Value, "", m.Name)
}

func without(ms []member, name string) (out []member) {
	for _, m := range ms {
		if m.Name != name {
			out = append(out, m)
		}
	}
	return out
}

// entries reads every entry. Of two entries with one name neither counts: it is not clear which one was meant.
func (r *reader) entries(prefix string, ms []member) {
	count := map[string]int{}
	for _, m := range ms {
		count[m.Name]++
	}
	done := map[string]bool{}
	for _, m := range ms {
		first := len(r.file.Problems)
		e := Entry{Name: m.Name, Enabled: true, Place: r.path + ": " + prefix + show(m.Name)}
		if count[m.Name] > 1 {
			r.problem(Problem{Entry: m.Name, Text: "the name stands twice, so neither entry counts.", Next: "Rename or remove one of them."}, m.at)
		}
		r.entry(&e, m)
		e.Problems = append([]Problem(nil), r.file.Problems[first:]...)
		if done[m.Name] {
			r.merge(e)
			continue
		}
		done[m.Name] = true
		r.file.Entries = append(r.file.Entries, e)
	}
}

// merge adds the problems of a second entry of the same name to the first one.
func (r *reader) merge(e Entry) {
	for i := range r.file.Entries {
		if r.file.Entries[i].Name == e.Name {
			r.file.Entries[i].Problems = append(r.file.Entries[i].Problems, e.Problems...)
		}
	}
}
