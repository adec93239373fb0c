// Package command is the one parser of the arguments of the builtin tool
// run_command. Permission decides on what it returns, the card shows it, the
// writ commits to it and the executor runs it: with two parsers a person could
// approve something else than what runs.
package command

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/writ-dev/writ/internal/rawjson"
)

// Limits and defaults of a command.
const (
	DefaultTimeout = 120 * time.Second
	MinTimeout     = time.Second
	MaxTimeout     = time.Hour
	// MaxString is the longest single argument or variable that Linux passes to a
	// program (MAX_ARG_STRLEN, 32 pages, less its terminating zero).
	MaxString = 32*4096 - 1
	MaxArgv   = 4096 // arguments in argv
	MaxEnv    = 256  // variables in env
	MaxCwd    = 4096 // bytes of cwd (PATH_MAX)
	// NetworkNone and NetworkOpen are the values of network.
	NetworkNone = "none"
	NetworkOpen = "open"
	// DefaultIsolation is the least isolation that a command gets unless it asks for another: all of it, where the limits of
	// an ordinary user, who has no cgroup of its own, may be kept by rlimits. The receipt says which it was.
	DefaultIsolation = "isolated-soft-caps"
	// IsolationHost asks for a run without isolation, which only a person can allow.
	IsolationHost = "host"
)

// isolationLevels are the levels that a command may ask for as its least one,
// strongest first. What a machine can give is for the executor to say.
var isolationLevels = [...]string{"isolated", DefaultIsolation, "restricted", "guarded", IsolationHost}

// Var is one environment variable.
type Var struct{ Name, Value string }

// Command is what run_command is asked to run. Exactly one of Line and Argv is set.
type Command struct {
	Line      string        // a line for /bin/sh -c
	Argv      []string      // a program and its arguments, run without a shell
	Cwd       string        // clean path, relative to the workspace or absolute; "." is the workspace
	Env       []Var         // in the order in which they were given
	Stdin     []byte        // nil if none was given
	Timeout   time.Duration // between MinTimeout and MaxTimeout
	Network   string        // NetworkNone or NetworkOpen
	Isolation string        // the least level
}

// Problem is the kind of an Error, a stable word for machines.
type Problem string

// The problems.
const (
	NotJSON      Problem = "NOT_JSON"      // see Unwrap: a *rawjson.Error
	UnknownField Problem = "UNKNOWN_FIELD" // a field that run_command does not have
	Missing      Problem = "MISSING"       // neither command nor argv
	Conflict     Problem = "CONFLICT"      // both command and argv
	WrongType    Problem = "WRONG_TYPE"    // another JSON type than the schema says
	Invalid      Problem = "INVALID"       // a value that is not allowed
	TooLong      Problem = "TOO_LONG"      // over a limit
)

// Error names the field, what is wrong with it, the limit where there is one, and what to do.
type Error struct {
	Problem Problem
	Field   string // "env.PATH", "argv[3]"; "" for the arguments as a whole
	Detail  string // what is wrong
	Next    string // what to do next
	Limit   int64  // the limit that was hit, or 0
	Got     int64  // what was found where a limit was hit
	cause   error
}

// Error is one sentence with the field, the problem and the next step.
func (e *Error) Error() string {
	field := "arguments"
	if e.Field != "" {
		field = e.Field
	}
	return fmt.Sprintf("run_command: %s: %s; %s", field, e.Detail, e.Next)
}

// Unwrap returns the *rawjson.Error behind NotJSON and WrongType.
func (e *Error) Unwrap() error { return e.cause }

// Parse reads the arguments of run_command. The error is an *Error.
func Parse(arguments []byte) (Command, error) {
	if err := rawjson.CheckObject(arguments, rawjson.Limits{}); err != nil {
		return Command{}, &Error{Problem: NotJSON, Detail: err.Error(), Next: "send one JSON object", cause: err}
	}
	c := Command{Cwd: ".", Timeout: DefaultTimeout, Network: NetworkNone, Isolation: DefaultIsolation}
	var line, argv bool
	for m, err := range rawjson.Members(arguments) {
		if err != nil {
			return Command{}, &Error{Problem: NotJSON, Detail: err.Error(), Next: "send one JSON object", cause: err}
		}
		line, argv = line || m.Name == "command", argv || m.Name == "argv"
		if err := c.set(m); err != nil {
			return Command{}, err
		}
	}
	switch {
	case line && argv:
		return Command{}, &Error{Problem: Conflict, Field: "argv", Detail: "command and argv are both given", Next: "give one of them"}
	case !line && !argv:
		return Command{}, &Error{Problem: Missing, Field: "command", Detail: "nothing to run", Next: "give command (a shell line) or argv (a list of strings)"}
	}
	return c, nil
}

func (c *Command) set(m rawjson.Member) error {
	switch m.Name {
	case "command":
		return c.setLine(m.Value)
	case "argv":
		return c.setArgv(m.Value)
	case "cwd":
		return c.setCwd(m.Value)
	case "env":
		return c.setEnv(m.Value)
	case "stdin":
		s, err := text(m.Name, m.Value)
		c.Stdin = []byte(s)
		return err
	case "timeout_seconds":
		return c.setTimeout(m.Value)
	case "network":
		return c.setNetwork(m.Value)
	case "isolation":
		return c.setIsolation(m.Value)
	}
	return &Error{Problem: UnknownField, Field: m.Name, Detail: "unknown field",
		Next: "leave it out; the fields are command, argv, cwd, env, stdin, timeout_seconds, network and isolation"}
}

func (c *Command) setLine(raw []byte) (err error) {
	if c.Line, err = argument("command", raw); err != nil {
		return err
	}
	if strings.Trim(c.Line, " \t\r\n") == "" {
		return &Error{Problem: Invalid, Field: "command", Detail: "the line is empty", Next: "give a shell line"}
	}
	return nil
}

func (c *Command) setArgv(raw []byte) error {
	if rawjson.TypeOf(raw) != rawjson.Array {
		return wrongType("argv", raw, "a list of strings")
	}
	for element, err := range rawjson.Elements(raw) {
		if err != nil {
			return wrongType("argv", raw, "a list of strings")
		}
		if len(c.Argv) == MaxArgv {
			return &Error{Problem: TooLong, Field: "argv", Detail: fmt.Sprintf("more than %d arguments", MaxArgv), Next: "pass them by a file or by stdin", Limit: MaxArgv, Got: MaxArgv + 1}
		}
		s, err := argument(fmt.Sprintf("argv[%d]", len(c.Argv)), element)
		if err != nil {
			return err
		}
		c.Argv = append(c.Argv, s)
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return &Error{Problem: Invalid, Field: "argv", Detail: "no program", Next: "make the program's name or path the first element"}
	}
	return nil
}

// setCwd keeps a clean path without "..": whether it is a folder inside the
// workspace, links resolved, is the executor's to find out.
func (c *Command) setCwd(raw []byte) error {
	s, err := text("cwd", raw)
	if err != nil {
		return err
	}
	next := "give a folder inside the workspace, relative to it or absolute"
	switch {
	case s == "":
		return &Error{Problem: Invalid, Field: "cwd", Detail: "empty path", Next: next}
	case len(s) > MaxCwd:
		return &Error{Problem: TooLong, Field: "cwd", Detail: fmt.Sprintf("%d bytes, the limit is %d", len(s), MaxCwd), Next: next, Limit: MaxCwd, Got: int64(len(s))}
	case strings.ContainsRune(s, 0):
		return &Error{Problem: Invalid, Field: "cwd", Detail: "a zero byte in the path", Next: next}
	}
	for _, step := range strings.Split(s, "/") {
		if step == ".." {
			return &Error{Problem: Invalid, Field: "cwd", Detail: `".." in the path`, Next: next}
		}
	}
	c.Cwd = path.Clean(s)
	return nil
}

func (c *Command) setEnv(raw []byte) error {
	if rawjson.TypeOf(raw) != rawjson.Object {
		return wrongType("env", raw, "an object of strings")
	}
	for m, err := range rawjson.Members(raw) {
		if err != nil {
			return wrongType("env", raw, "an object of strings")
		}
		if len(c.Env) == MaxEnv {
			return &Error{Problem: TooLong, Field: "env", Detail: fmt.Sprintf("more than %d variables", MaxEnv), Next: "pass fewer, or a file", Limit: MaxEnv, Got: MaxEnv + 1}
		}
		field := "env." + m.Name
		if !ValidName(m.Name) {
			return &Error{Problem: Invalid, Field: field, Detail: "not a name for a variable", Next: "use letters, digits and _, no digit first"}
		}
		value, err := argument(field, m.Value)
		if err != nil {
			return err
		}
		c.Env = append(c.Env, Var{m.Name, value})
	}
	return nil
}

// ValidName reports whether a variable may be called so: [A-Za-z_][A-Za-z0-9_]*
func ValidName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func (c *Command) setTimeout(raw []byte) error {
	if rawjson.TypeOf(raw) != rawjson.Number {
		return wrongType("timeout_seconds", raw, "a number")
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || seconds < MinTimeout.Seconds() || seconds > MaxTimeout.Seconds() {
		return &Error{Problem: Invalid, Field: "timeout_seconds", Detail: "not between 1 and 3600", Next: "give a number of seconds between 1 and 3600", Limit: int64(MaxTimeout / time.Second)}
	}
	c.Timeout = time.Duration(math.Round(seconds * float64(time.Second)))
	return nil
}

func (c *Command) setNetwork(raw []byte) error {
	s, err := text("network", raw)
	if err != nil {
		return err
	}
	if s != NetworkNone && s != NetworkOpen {
		return &Error{Problem: Invalid, Field: "network", Detail: strconv.QuoteToASCII(s) + " is no network", Next: `use "none" or "open"`}
	}
	c.Network = s
	return nil
}

func (c *Command) setIsolation(raw []byte) error {
	s, err := text("isolation", raw)
	if err != nil {
		return err
	}
	for _, level := range isolationLevels {
		if s == level {
			c.Isolation = s
			return nil
		}
	}
	return &Error{Problem: Invalid, Field: "isolation", Detail: strconv.QuoteToASCII(s) + " is no isolation level",
		Next: "use " + strings.Join(isolationLevels[:len(isolationLevels)-1], ", ") + " or " + IsolationHost}
}

func text(field string, raw []byte) (string, error) {
	if rawjson.TypeOf(raw) != rawjson.Str {
		return "", wrongType(field, raw, "a string")
	}
	return rawjson.String(raw)
}

// argument is a string that can be passed to a program.
func argument(field string, raw []byte) (string, error) {
	s, err := text(field, raw)
	switch {
	case err != nil:
		return "", err
	case len(s) > MaxString:
		return "", &Error{Problem: TooLong, Field: field, Detail: fmt.Sprintf("%d bytes, the limit is %d", len(s), MaxString), Next: "pass it by a file or by stdin", Limit: MaxString, Got: int64(len(s))}
	case strings.ContainsRune(s, 0):
		return "", &Error{Problem: Invalid, Field: field, Detail: "a zero byte, which ends a string for the program", Next: "pass it by stdin"}
	}
	return s, nil
}

func wrongType(field string, raw []byte, want string) error {
	return &Error{Problem: WrongType, Field: field, Detail: want + " is needed, this is " + rawjson.TypeOf(raw).String(), Next: "send " + want}
}

// Display is the exact command as one text: the line as it is, or argv quoted
// so that a POSIX shell would split it into the same arguments.
func (c Command) Display() string {
	if c.Argv == nil {
		return c.Line
	}
	quoted := make([]string, len(c.Argv))
	for i, a := range c.Argv {
		quoted[i] = quote(a)
	}
	return strings.Join(quoted, " ")
}

// quote leaves plain words alone and puts everything else in single quotes.
func quote(s string) string {
	plain := s != ""
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_-./:@%+,", rune(c)) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
