package connector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Expand replaces ${VAR} and ${VAR:-default} in command, arguments, environment, folder and address by what a human
// bound to this connector, and returns what is bound by nobody. The default counts only beside a binding that is
// empty: an unbound variable is refused rather than guessed at. What was put in is not expanded again.
func Expand(s Spec, bound map[string]string) (Spec, []Issue) {
	e := expander{bound: bound}
	s = s.Clone()
	s.Command = e.text("command", s.Command)
	for i := range s.Args {
		s.Args[i] = e.text(fmt.Sprintf("args[%d]", i), s.Args[i])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		s.Env[name] = e.text("env."+name, s.Env[name])
	}
	s.WorkingFolder = e.text("working_folder", s.WorkingFolder)
	s.URL = e.text("url", s.URL)
	if len(e.issues) == 0 {
		e.issues = Validate(s)
	}
	return s, e.issues
}

type expander struct {
	bound  map[string]string
	issues []Issue
}

func (e *expander) text(field, s string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		reference, after, closed := strings.Cut(rest, "}")
		if !closed {
			e.issues = append(e.issues, Issue{Field: field, Problem: `holds "${" without "}".`, Next: "Close the reference."})
			return out.String()
		}
		out.WriteString(e.value(field, reference))
		s = after
	}
}

func (e *expander) value(field, reference string) string {
	name, fallback, _ := strings.Cut(reference, ":-")
	value, ok := e.bound[name]
	if !ok {
		e.issues = append(e.issues, Issue{
			Field: field, Variable: name,
			Problem: fmt.Sprintf("the variable %.64q is bound by nobody.", name),
			Next:    "Bind it for this connector in writ.yaml; the environment of Writ is not looked at.",
		})
		return ""
	}
	if value == "" {
		return fallback
	}
	return value
}
