package mcpjson

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
)

// known are the fields that mean something here.
var known = []string{
	"type", "transport", "command", "args", "env", "cwd", "working_folder", "url",
	"enabled", "disabled", "idle_timeout_seconds", "host_isolation_accepted_for",
}

// decoration are fields that other hosts write for people or for their own shops, and that change nothing.
var decoration = []string{"$schema", "description", "gallery", "version"}

// refused are fields of other hosts that would change what is started or what may happen, each with the reason why it
// is not followed. Passing over one would be a silent difference.
var refused = map[string]string{
	"headers":       `Headers can't be set here yet. Remove "headers".`,
	"oauth":         `Sign-in is not set here. Remove "oauth".`,
	"auth":          `Sign-in is not set here. Remove "auth".`,
	"envFile":       `Files of variables are not read. Write the variables into "env".`,
	"alwaysAllow":   "Nothing in this file grants anything: a person settles tools with `writ grants` or on a card. Remove it.",
	"autoApprove":   "Nothing in this file grants anything: a person settles tools with `writ grants` or on a card. Remove it.",
	"trust":         "Nothing in this file grants anything: a person settles tools with `writ grants` or on a card. Remove it.",
	"timeout":       `Time limits are settings of Writ. Remove "timeout".`,
	"dev":           `Development modes of other hosts are not followed. Remove "dev".`,
	"sandbox":       "Isolation is Writ's own and can't be set here. Remove it.",
	"includeTools":  "Which tools an agent may use is set per agent in writ.yaml. Remove it.",
	"excludeTools":  "Which tools an agent may use is set per agent in writ.yaml. Remove it.",
	"disabledTools": "Which tools an agent may use is set per agent in writ.yaml. Remove it.",
}

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// entry reads one server; what is wrong with it goes to the file's problems.
func (r *reader) entry(e *Entry, m member) {
	x := &entryReader{reader: r, entry: e, at: m.at, fields: map[string]int{}}
	switch {
	case !connector.ValidName(m.Name):
		x.add("", m.at, "this can't be a connector's name: "+connector.NameRule+".", "Rename the entry.")
	case connector.Reserved(m.Name):
		x.add("", m.at, "the name belongs to Writ.", "Rename the entry.")
	}
	if t := rawjson.TypeOf(m.Value); t != rawjson.Object {
		x.add("", m.at, "is "+t.String()+".", `Write an object with "command" or "url".`)
		return
	}
	if err := rawjson.Check(m.Value, rawjson.Limits{}); err != nil {
		r.unreadable(m.Value, m.Name, "", err)
		return
	}
	fields, ok := r.members(m.Value, m.Name, "")
	if !ok {
		return
	}
	before := len(r.file.Problems)
	for _, f := range fields {
		x.field(f)
	}
	x.transport()
	// Only an entry whose fields could all be read is looked at as a whole; else one mistake would be told twice.
	if len(r.file.Problems) == before {
		x.whole()
	}
}

type entryReader struct {
	*reader
	entry     *Entry
	at        int
	fields    map[string]int // where each field's value stands
	kind      string         // the transport as it was written
	kindField string
}

func (x *entryReader) add(field string, at int, text, next string) {
	x.problem(Problem{Entry: x.entry.Name, Field: field, Text: text, Next: next}, at)
}

func (x *entryReader) field(f member) {
	x.fields[f.Name] = f.at
	s := &x.entry.Spec
	switch f.Name {
	case "type", "transport":
		x.kindOf(f)
	case "command":
		s.Command = x.str(f.Name, f)
	case "args":
		s.Args = x.strs(f)
	case "env":
		s.Env = x.env(f)
	case "cwd", "working_folder":
		if folder := x.str(f.Name, f); s.WorkingFolder != "" && folder != s.WorkingFolder {
			x.add(f.Name, f.at, `says another folder than the other one of "cwd" and "working_folder".`, "Keep one of them.")
		} else {
			s.WorkingFolder = folder
		}
	case "url":
		s.URL = x.str(f.Name, f)
	case "enabled":
		x.entry.Enabled = x.boolean(f) && x.entry.Enabled
	case "disabled":
		x.entry.Enabled = !x.boolean(f) && x.entry.Enabled
	case "idle_timeout_seconds":
		x.idle(f)
	case "host_isolation_accepted_for":
		x.accepted(f)
	default:
		x.unknown(f)
	}
}

func (x *entryReader) unknown(f member) {
	if slices.Contains(decoration, f.Name) {
		return
	}
	if why, ok := refused[f.Name]; ok {
		x.add(f.Name, f.at, "is not followed.", why)
		return
	}
	x.add(f.Name, f.at, "is not a field that is known."+suggest(f.Name, known), "Correct or remove it.")
}

func (x *entryReader) kindOf(f member) {
	word := x.str(f.Name, f)
	kind := ""
	switch word {
	case "stdio":
		kind = connector.Stdio
	case "http", "streamable-http", "streamable_http", "streamableHttp":
		kind = connector.HTTP
	case "sse", "ws":
		x.add(f.Name, f.at, fmt.Sprintf("%q is a transport that is not spoken.", word), "Use the server's streamable HTTP address with \"http\".")
		return
	case "":
		if rawjson.TypeOf(f.Value) == rawjson.Str {
			x.add(f.Name, f.at, "is empty.", `Use "stdio" or "http".`)
		}
		return
	default:
		x.add(f.Name, f.at, fmt.Sprintf("%.40q is not a transport.", word)+suggest(word, []string{"stdio", "http"}), `Use "stdio" or "http".`)
		return
	}
	if x.kindField != "" && x.kind != kind {
		x.add(f.Name, f.at, "says another transport than \""+x.kindField+"\".", "Keep one of them.")
		return
	}
	x.kind, x.kindField = kind, f.Name
}

// transport settles the transport where the entry does not say it: a command is a process, an address is a remote.
func (x *entryReader) transport() {
	_, command := x.fields["command"]
	_, url := x.fields["url"]
	s := &x.entry.Spec
	switch {
	case x.kind != "":
		s.Transport = x.kind
	case x.fields["type"] != 0 || x.fields["transport"] != 0: // it is wrong, and that was said
	case command && url:
		x.add("url", x.fields["url"], `stands beside "command"; it is not clear which one counts.`, `Keep one of them, or say "type".`)
	case command:
		s.Transport = connector.Stdio
	case url:
		s.Transport = connector.HTTP
	default:
		x.add("", x.at, `has neither "command" nor "url".`, "Name the program to start, or the address of a remote server.")
	}
}

// whole checks the entry as a connector, and its variables.
func (x *entryReader) whole() {
	issues := connector.Validate(x.entry.Spec)
	if len(issues) == 0 {
		_, issues = connector.Expand(x.entry.Spec, x.bound[x.entry.Name])
	}
	for _, i := range issues {
		x.problem(Problem{Entry: x.entry.Name, Field: i.Field, Variable: i.Variable, Text: i.Problem, Next: i.Next}, x.place(i.Field))
	}
}

// place is where a field such as "env.TOKEN" or "args[2]" stands, as far as the reader knows.
func (x *entryReader) place(field string) int {
	for end := len(field); end > 0; end-- {
		if at, ok := x.fields[field[:end]]; ok {
			return at
		}
	}
	if field == "working_folder" {
		if at, ok := x.fields["cwd"]; ok {
			return at
		}
	}
	return x.at
}
