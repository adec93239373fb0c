// Package shell says whether a command destroys something, judged by what stands in command position (R44), and which
// command words a standing answer would have to name (R45).
//
// It is careful, not complete: what it can't read is opaque and asks. Scripts on disk, and programs that run others
// without being known for it, are not looked into. The sandbox is the boundary; this chooses when to ask.
package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds of the work on one command. What is over them is opaque.
const (
	MaxLine     = 64 << 10 // bytes
	MaxCommands = 2000     // commands looked at, nested ones included
	MaxDepth    = 8        // code inside code: bash -c "bash -c …"
	MaxNesting  = 200      // brackets inside each other in one text
)

// Result is what is known of a command.
type Result struct {
	// Destructive: it deletes or overwrites something, or Opaque.
	Destructive bool
	// Opaque: what it does can't be known before it runs. Never remembered.
	Opaque bool
	// Words are the command words in it, each a program or a program with its sub-command, sorted. Commands that only
	// move about or print are left out where there are others.
	Words []string
	// Rememberable: Words cover all that runs.
	Rememberable bool
}

// Line looks at a line for /bin/sh -c.
func Line(line string) Result {
	s := &scan{}
	s.source(line, 0)
	return s.result()
}

// Argv looks at a program and its arguments.
func Argv(argv []string) Result {
	s := &scan{}
	args := make([]arg, len(argv))
	for i, a := range argv {
		args[i] = arg{text: a, literal: true}
	}
	s.command(args, 0)
	return s.result()
}

// scan collects what is found.
type scan struct {
	destructive, opaque, wrapped bool
	commands                     int
	words, neutral               []string
}

func (s *scan) result() Result {
	words := s.words
	if len(words) == 0 {
		words = s.neutral
	}
	slices.Sort(words)
	words = slices.Compact(words)
	return Result{
		Destructive: s.destructive || s.opaque, Opaque: s.opaque, Words: words,
		Rememberable: !s.opaque && !s.wrapped && len(words) > 0,
	}
}

// destroys marks a command word as destructive.
func (s *scan) destroys(word string) {
	s.destructive = true
	s.words = append(s.words, word)
}

func (s *scan) plain(word string) { s.words = append(s.words, word) }

// source looks at shell code.
func (s *scan) source(code string, depth int) {
	if len(code) > MaxLine || depth > MaxDepth || deep(code) {
		s.opaque = true
		return
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(code), "")
	if err != nil {
		s.opaque = true
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if s.commands > MaxCommands {
			s.opaque = true
			return false
		}
		s.node(n, depth)
		return true
	})
}

// deep finds text whose brackets could exhaust a recursive parser.
func deep(code string) bool {
	n := 0
	for _, c := range []byte(code) {
		switch c {
		case '(', '{', '`':
			if n++; n > MaxNesting {
				return true
			}
		case ')', '}':
			n = max(n-1, 0)
		}
	}
	return false
}

func (s *scan) node(n syntax.Node, depth int) {
	switch n := n.(type) {
	case *syntax.CallExpr:
		s.assigns(n.Assigns)
		if len(n.Args) > 0 {
			s.command(arguments(n.Args), depth)
		}
	case *syntax.DeclClause:
		s.assigns(n.Args)
	case *syntax.Redirect:
		s.redirect(n)
	case *syntax.FuncDecl:
		if n.Name != nil && callsItself(n) {
			s.destroys(n.Name.Value)
		}
	}
}

// callsItself finds the function that starts itself again, as a fork bomb does.
func callsItself(f *syntax.FuncDecl) (found bool) {
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 && c.Args[0].Lit() == f.Name.Value {
			found = true
		}
		return !found
	})
	return found
}

// assigns finds variables that change what a command word means.
func (s *scan) assigns(list []*syntax.Assign) {
	for _, a := range list {
		if a.Name != nil && RiskyVariable(a.Name.Value) {
			s.opaque = true
		}
	}
}

// RiskyVariable reports whether a variable can make a program run something other than its name says.
func RiskyVariable(name string) bool {
	for _, prefix := range []string{"LD_", "DYLD_", "GIT_", "PYTHON", "PERL", "RUBY", "NODE_", "NPM_CONFIG_", "npm_config_", "BASH_", "JAVA_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{
		"PATH", "ENV", "IFS", "SHELL", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "EDITOR", "VISUAL", "PAGER", "MANPAGER",
		"LESSOPEN", "GCONV_PATH", "RUSTC_WRAPPER", "CC", "CXX", "MAKEFLAGS", "HOME", "ZDOTDIR", "TAR_OPTIONS", "RSYNC_RSH", "BROWSER", "CLASSPATH",
	}, name)
}

// redirect finds output that replaces a file.
func (s *scan) redirect(r *syntax.Redirect) {
	target, ok := literal(r.Word)
	switch r.Op {
	case syntax.RdrOut, syntax.RdrClob, syntax.RdrAll, syntax.RdrInOut, syntax.RdrAllClob:
	case syntax.DplOut:
		if ok && (target == "-" || strings.Trim(target, "0123456789-") == "") {
			return
		}
	default:
		return
	}
	if ok && (target == "/dev/null" || target == "/dev/stdout" || target == "/dev/stderr" || target == "/dev/tty") {
		return
	}
	s.destroys(">")
}

// arg is one word of a command.
type arg struct {
	text    string // its value where it is literal, else nothing
	literal bool
	pattern bool // literal text that the shell would still expand: * ? [ { or a leading ~
}

func arguments(words []*syntax.Word) []arg {
	out := make([]arg, len(words))
	for i, w := range words {
		out[i].text, out[i].literal = literal(w)
		out[i].pattern = expands(w)
	}
	return out
}

// command looks at one simple command.
func (s *scan) command(args []arg, depth int) {
	if s.commands++; s.commands > MaxCommands || depth > MaxDepth {
		s.opaque = true
		return
	}
	head := args[0]
	if !head.literal || head.pattern || head.text == "" {
		s.opaque = true
		return
	}
	s.program(head.text, args[1:], depth)
}

// Base is the name of a program without its folder, as a case-insensitive file system would find it.
func Base(program string) string {
	name := strings.ToLower(program)
	if !strings.ContainsAny(name, " \t\n") {
		name = path.Base(name)
	}
	return strings.TrimSuffix(name, ".exe")
}

// wordOf is how a program is remembered: by its name where it lies where the system keeps programs, else by the path
// that was written.
func wordOf(program string) string {
	if dir, name := path.Split(program); dir == "" || slices.Contains([]string{"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/"}, dir) {
		return name
	}
	return program
}
