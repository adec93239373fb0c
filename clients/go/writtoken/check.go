package writtoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
)

// SaltSize is the length of the salts that NewSalt makes.
const SaltSize = 32

// NewSalt makes the salt for one call.
func NewSalt(random io.Reader) ([]byte, error) {
	salt := make([]byte, SaltSize)
	_, err := io.ReadFull(random, salt)
	return salt, err
}

// CommitArguments is the HMAC-SHA256 of the argument bytes under the salt, in
// base64url as it stands in the token.
func CommitArguments(salt, arguments []byte) string { return encode(commitArguments(salt, arguments)) }

func commitArguments(salt, arguments []byte) []byte {
	mac := hmac.New(sha256.New, salt)
	mac.Write(arguments)
	return mac.Sum(nil)
}

// NewArgs is the commitment that Mint puts into a token.
func NewArgs(salt, arguments []byte) Args {
	return Args{Alg: AlgHMACSHA256, Salt: salt, MAC: commitArguments(salt, arguments), Size: int64(len(arguments))}
}

// CheckArguments reports whether the writ is for exactly these bytes. Give it
// the very buffer that is sent on.
func (c *Claims) CheckArguments(b []byte) error {
	if int64(len(b)) != c.Args.Size {
		return differ(ReasonArguments, "args.size", strconv.FormatInt(c.Args.Size, 10), strconv.Itoa(len(b)))
	}
	if !hmac.Equal(commitArguments(c.Args.Salt, b), c.Args.MAC) {
		return &Error{Reason: ReasonArguments, Field: "args.mac", Detail: "these are not the bytes that were allowed"}
	}
	return nil
}

// CheckTool reports whether the writ is for this tool in this very definition
// at this very provider.
func (c *Claims) CheckTool(tool, fingerprint, providerDigest string) error {
	switch {
	case c.Tool != tool:
		return differ(ReasonTool, "tool", c.Tool, tool)
	case c.ProviderDigest != providerDigest:
		return differ(ReasonProvider, "provider_digest", c.ProviderDigest, providerDigest)
	case c.Fingerprint != fingerprint:
		return differ(ReasonFingerprint, "fingerprint", c.Fingerprint, fingerprint)
	}
	return nil
}

// EnvVar is one variable of a command's environment.
type EnvVar struct{ Name, Value string }

// CommandInput is everything that CommitCommand commits to.
type CommandInput struct {
	Line  string   // for /bin/sh -c; "" if Argv is set
	Argv  []string // program and arguments; nil if Line is set
	Cwd   string
	Env   []EnvVar // in their order
	Stdin []byte   // nil: none
}

// CommitCommand is the HMAC-SHA256 under the salt of
//
//	"writ-exec-v1", form, n, then n words, cwd, m, then m names and values, then stdin
//
// where form is "line" or "argv", numbers are unsigned 64 bits big-endian, and
// every text has its length, as such a number, before it; stdin has a number
// before that: 0 for none, which ends the input, else 1.
func CommitCommand(salt []byte, in CommandInput) []byte {
	mac := hmac.New(sha256.New, salt)
	number := func(n int) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		mac.Write(b[:])
	}
	text := func(s string) {
		number(len(s))
		io.WriteString(mac, s)
	}
	form, words := "line", []string{in.Line}
	if in.Argv != nil {
		form, words = "argv", in.Argv
	}
	text("writ-exec-v1")
	text(form)
	number(len(words))
	for _, w := range words {
		text(w)
	}
	text(in.Cwd)
	number(len(in.Env))
	for _, v := range in.Env {
		text(v.Name)
		text(v.Value)
	}
	if in.Stdin == nil {
		number(0)
	} else {
		number(1)
		text(string(in.Stdin))
	}
	return mac.Sum(nil)
}

// CheckCommand reports whether the writ is for this command, run like this.
// timeout and max_output may be less than the writ allows, the isolation is
// compared by the executor, which knows what the machine gives.
func (c *Claims) CheckCommand(in CommandInput, network string) error {
	switch {
	case c.Exec == nil:
		return &Error{Reason: ReasonScopes, Field: "exec", Detail: "the writ is for no command"}
	case in.Cwd != c.Exec.Cwd:
		return differ(ReasonScopes, "exec.cwd", c.Exec.Cwd, in.Cwd)
	case !hmac.Equal(CommitCommand(c.Args.Salt, in), c.Exec.MAC):
		return &Error{Reason: ReasonArguments, Field: "exec.mac", Detail: "this is not the command that was allowed"}
	case network != c.Exec.Network:
		return differ(ReasonScopes, "exec.network", c.Exec.Network, network)
	case network == "open" && c.Scopes.Network.Mode != "open":
		return differ(ReasonScopes, "scopes.network.mode", c.Scopes.Network.Mode, network)
	}
	return nil
}

// CheckPath reports whether the writ lets the call reach exactly this path,
// with this identity, and with write access if that is wanted.
func (c *Claims) CheckPath(f Folder, write bool) error {
	for i, p := range c.Scopes.Paths {
		if p.Path != f.Path {
			continue
		}
		if p.Folder != f {
			return differ(ReasonScopes, at("scopes.paths", i), p.Folder.String(), f.String())
		}
		if write && p.Access != "write" {
			return differ(ReasonScopes, at("scopes.paths", i)+".access", p.Access, "write")
		}
		return nil
	}
	return &Error{Reason: ReasonScopes, Field: "scopes.paths", Detail: strconv.QuoteToASCII(f.Path) + " is not listed"}
}

// CheckRoot reports whether an MCP server may be told this folder; nil is none.
func (c *Claims) CheckRoot(f *Folder) error {
	want := c.Scopes.MCPRoot
	if f == nil && want == nil || f != nil && want != nil && *f == *want {
		return nil
	}
	return differ(ReasonScopes, "scopes.mcp_root", want.String(), f.String())
}

// String shows path, device and inode; a nil Folder is "none".
func (f *Folder) String() string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("%s (dev %d, ino %d)", f.Path, f.Dev, f.Ino)
}
