// Package provider says what exactly a connector starts: it finds the program,
// gives the provider digest that grants and writs are bound to, and builds the
// environment. A digest covers what is started, not what it then does: a script
// that the program reads later is covered only as far as scriptOf finds it.
package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// The transports.
const (
	Stdio = "stdio"
	HTTP  = "http"
)

// Spec is what an operator configured.
type Spec struct {
	Transport     string
	Command       string
	Args          []string
	Env           map[string]string
	WorkingFolder string // absolute; empty: a folder of its own
	URL           string
}

// Resolved is what a spec comes to on this machine.
type Resolved struct {
	Executable string // the absolute path that is started
	Digest     string // lower-case hex SHA-256
	Starts     string // what is started, in words
	Package    string // what a launcher such as npx would fetch; empty: none recognised
	Pinned     bool   // that package is named with an exact version
}

// NotFoundError says that the program is not there, and where it was looked for.
type NotFoundError struct {
	Command  string
	Searched string // folders, separated as in PATH
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("program %q was not found; searched: %s", e.Command, e.Searched)
}

// Resolver resolves specs with one search path. It remembers the hashes of
// programs by the identity of their files.
type Resolver struct {
	path   string
	hashes hashCache
}

// NewResolver returns a resolver that searches path, a list as in PATH.
func NewResolver(path string) *Resolver { return &Resolver{path: path} }

// Path is the search path.
func (r *Resolver) Path() string { return r.path }

// Resolve finds what the spec starts. The error is a NotFoundError, or that of
// reading the program.
func (r *Resolver) Resolve(s Spec) (Resolved, error) {
	out := Resolved{Starts: words(s)}
	d := newDigest("writ.dev/provider-digest/v1")
	d.text(s.Transport)
	if s.Transport == HTTP {
		d.text(s.URL)
		out.Digest = d.sum()
		return out, nil
	}
	exe, err := r.find(s)
	if err != nil {
		return out, err
	}
	real, err := filepath.EvalSymlinks(exe)
	if err != nil {
		return out, fmt.Errorf("program %s: %w", exe, err)
	}
	content, err := r.hashes.file(real)
	if err != nil {
		return out, fmt.Errorf("program %s: %w", real, err)
	}
	out.Executable = exe
	out.Package, out.Pinned = packageOf(s.Command, s.Args)
	d.text(s.Command)
	d.text(exe)
	d.text(real)
	d.text(content)
	d.list(s.Args)
	d.text(r.scriptHash(s, real))
	d.env(s.Env)
	d.text(s.WorkingFolder)
	d.text(out.Package)
	out.Digest = d.sum()
	return out, nil
}

func (r *Resolver) find(s Spec) (string, error) {
	if strings.ContainsRune(s.Command, '/') {
		path := s.Command
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.WorkingFolder, path)
		}
		if !filepath.IsAbs(path) || !executable(path) {
			return "", &NotFoundError{Command: s.Command, Searched: path}
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(r.path) {
		if !filepath.IsAbs(dir) { // a relative entry would depend on where the host was started
			continue
		}
		if path := filepath.Join(dir, s.Command); s.Command != "" && executable(path) {
			return path, nil
		}
	}
	return "", &NotFoundError{Command: s.Command, Searched: r.path}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// interpreters read their program from the first argument that is no flag.
var interpreters = []string{"node", "nodejs", "python", "python3", "deno", "bun", "ruby", "perl", "sh", "bash", "tsx"}

// scriptHash is the hash of the script that an interpreter is started with, so
// that an edited server is another provider; empty where there is none.
func (r *Resolver) scriptHash(s Spec, real string) string {
	if !slices.Contains(interpreters, filepath.Base(s.Command)) && !slices.Contains(interpreters, filepath.Base(real)) {
		return ""
	}
	for _, arg := range s.Args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		path := arg
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.WorkingFolder, path)
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return ""
		}
		sum, err := r.hashes.file(path)
		if err != nil {
			return ""
		}
		return sum
	}
	return ""
}

func words(s Spec) string {
	if s.Transport == HTTP {
		return "a connection to " + s.URL
	}
	parts := append([]string{s.Command}, s.Args...)
	for i, p := range parts {
		if p == "" || strings.ContainsAny(p, " \t\n\"'\\$`*?&|;<>(){}[]#~") {
			parts[i] = fmt.Sprintf("%q", p)
		}
	}
	out := strings.Join(parts, " ")
	if len(s.Env) > 0 {
		out += " with the variables " + strings.Join(sortedNames(s.Env), ", ")
	}
	if s.WorkingFolder != "" {
		out += " in " + s.WorkingFolder
	}
	return out
}

func sortedNames(env map[string]string) []string {
	names := make([]string, 0, len(env))
	for n := range env {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// digest hashes fields with their lengths before them, so that no two different
// lists of fields are the same bytes.
type digest struct{ h hash.Hash }

func newDigest(domain string) digest {
	d := digest{sha256.New()}
	d.text(domain)
	return d
}

func (d digest) text(s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	d.h.Write(n[:])
	d.h.Write([]byte(s))
}

func (d digest) list(items []string) {
	d.text(fmt.Sprint(len(items)))
	for _, s := range items {
		d.text(s)
	}
}

// env covers names and the hashes of values: a value may be a secret.
func (d digest) env(env map[string]string) {
	d.text(fmt.Sprint(len(env)))
	for _, name := range sortedNames(env) {
		sum := sha256.Sum256([]byte(env[name]))
		d.text(name)
		d.text(hex.EncodeToString(sum[:]))
	}
}

func (d digest) sum() string { return hex.EncodeToString(d.h.Sum(nil)) }

// IsNotFound reports whether err says that a program is missing.
func IsNotFound(err error) (*NotFoundError, bool) {
	var nf *NotFoundError
	ok := errors.As(err, &nf)
	return nf, ok
}
