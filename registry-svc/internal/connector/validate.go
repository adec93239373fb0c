package connector

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits of a spec, as docs/limits.md names them. Bytes and counts.
const (
	MaxArgs     = 256
	MaxArg      = 16384
	MaxVars     = 256
	MaxVar      = 32768
	MaxText     = 4096
	MaxIdleSecs = 7 * 24 * 3600
)

var (
	namePattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// reserved are the names that mean something of Writ's own in a tool's canonical id or on a list.
var reserved = []string{"builtin", "fn", "mcp", "native", "writ"}

// ValidName tells whether a connector may have this name at all.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// Reserved tells whether the name belongs to Writ.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// NameRule is the rule in words.
const NameRule = "a name is 1 to 32 of a-z 0-9 _ - and begins with a letter or a digit"

// Validate returns everything that is wrong with a spec, in the order of its fields.
func Validate(s Spec) []Issue {
	var v validator
	switch s.Transport {
	case Stdio:
		v.stdio(s)
	case HTTP:
		v.http(s)
	case "":
		v.add("transport", "is missing.", `Give "command" for a local process or "url" for a remote server.`)
	default:
		v.add("transport", fmt.Sprintf("%.40q is not known.", s.Transport), `Use "stdio" or "http".`)
	}
	v.env(s.Env)
	if s.IdleSeconds < -1 || s.IdleSeconds > MaxIdleSecs {
		v.add("idle_timeout_seconds", fmt.Sprintf("is %d.", s.IdleSeconds), "Use 1 to 604800, or leave it out for 300.")
	}
	return v.issues
}

type validator struct{ issues []Issue }

func (v *validator) add(field, problem, next string) {
	v.issues = append(v.issues, Issue{Field: field, Problem: problem, Next: next})
}

// text checks a text for what no program or file name can hold. It reports whether the text is fit for more checks.
func (v *validator) text(field, s string, limit int) bool {
	switch {
	case len(s) > limit:
		v.add(field, fmt.Sprintf("has %d bytes, the limit is %d.", len(s), limit), "Shorten it.")
	case !utf8.ValidString(s):
		v.add(field, "is not valid UTF-8.", "Write it as UTF-8.")
	case strings.ContainsRune(s, 0):
		v.add(field, "holds a NUL character.", "Remove it.")
	default:
		return true
	}
	return false
}

func (v *validator) stdio(s Spec) {
	switch {
	case s.Command == "":
		v.add("command", "is missing.", "Name the program to start.")
	case !v.text("command", s.Command, MaxText):
	case strings.ContainsAny(s.Command, " \t\n") && !filepath.IsAbs(s.Command):
		v.add("command", "holds white space: it is one program, not a shell line.", `Put what follows the program into "args".`)
	}
	if s.URL != "" {
		v.add("url", "stands beside the transport stdio.", `Remove "url", or use the transport "http".`)
	}
	if len(s.Args) > MaxArgs {
		v.add("args", fmt.Sprintf("has %d elements, the limit is %d.", len(s.Args), MaxArgs), "Give fewer.")
	}
	for i, a := range s.Args {
		v.text(fmt.Sprintf("args[%d]", i), a, MaxArg)
	}
	if w := s.WorkingFolder; w != "" && v.text("working_folder", w, MaxText) && !filepath.IsAbs(w) && !strings.HasPrefix(w, "${") {
		v.add("working_folder", "is not an absolute path.", "Write the whole path; nothing is relative to where Writ was started.")
	}
}

func (v *validator) http(s Spec) {
	for field, present := range map[string]bool{"command": s.Command != "", "args": len(s.Args) > 0, "env": len(s.Env) > 0, "working_folder": s.WorkingFolder != ""} {
		if present {
			v.add(field, "stands beside the transport http, which starts nothing.", "Remove it, or use the transport \"stdio\".")
		}
	}
	slices.SortFunc(v.issues, func(a, b Issue) int { return strings.Compare(a.Field, b.Field) })
	if s.URL == "" {
		v.add("url", "is missing.", "Give the address of the server's MCP endpoint.")
		return
	}
	if !v.text("url", s.URL, MaxText) || strings.Contains(s.URL, "${") {
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		v.add("url", "is not an http or https address.", "Write it as https://host/path.")
	case u.User != nil:
		v.add("url", "holds a user name or password.", "Remove it: an address is shown to people.")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		v.add("url", "is http to another machine: what is sent could be read and changed on the way.", "Use https; http is for 127.0.0.1, [::1] and localhost.")
	}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (v *validator) env(env map[string]string) {
	if len(env) > MaxVars {
		v.add("env", fmt.Sprintf("has %d variables, the limit is %d.", len(env), MaxVars), "Give fewer.")
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variablePattern.MatchString(name) || len(name) > 256 {
			v.add(fmt.Sprintf("env.%.64q", name), "is no name of a variable.", "Use letters, digits and _, not beginning with a digit.")
			continue
		}
		v.text("env."+name, env[name], MaxVar)
	}
}
