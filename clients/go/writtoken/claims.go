// Package writtoken mints and verifies writs.
//
// A writ is the signed permit for one call of one tool: a JWS in compact form
// (RFC 7515) with an Ed25519 signature (alg EdDSA, RFC 8037) and the claims of
// proto/writ.schema.json. Vectors for other languages lie in
// proto/testvectors/writ. The package imports nothing but the standard library
// and clients/go/rawjson.
//
// An executor calls Verifier.Verify, then CheckTool, CheckArguments and, before
// it gives a process anything, the scope checks, each against what it is really
// about to do. Every refusal is an *Error with its own Reason.
package writtoken

import (
	"slices"
	"strconv"
	"time"
)

// Limits of a writ.
const (
	MaxTokenBytes = 64 << 10  // the whole token
	MaxLifetime   = time.Hour // from not-before to expiry
	MaxPaths      = 256       // in scopes.paths
	MaxHosts      = 256       // in scopes.network.hosts
	MaxSecrets    = 64        // in scopes.secrets
	MaxChain      = 16        // principals in the chain
	maxText       = 1024      // bytes of an identifier
	maxPath       = 4096      // bytes of a path (PATH_MAX)
)

// Claims is what a writ says. Times have whole seconds.
type Claims struct {
	Issuer    string    // iss: urn:writ:<deployment>:permission
	Audience  string    // aud: urn:writ:<deployment>:mcp-host or :exec
	ID        string    // jti: unique per writ
	IssuedAt  time.Time // iat
	NotBefore time.Time // nbf
	Expiry    time.Time // exp

	Deployment string      // deployment: its id
	Namespace  string      // ns: the tenant
	Subject    Principal   // sub, sub_kind: who acts
	Chain      []Principal // chain: on whose behalf, nearest first; may be empty
	AssertedBy string      // asserted_by: the service that vouches for the subject; "" if it authenticated itself

	Agent        string // agent: may be empty
	Conversation string // conversation: may be empty
	Turn         string // turn: its id
	Call         string // call: its id within the turn

	Tool           string // tool: canonical id
	Fingerprint    string // fingerprint: `wire` SHA-256 of the definition, lower-case hex
	Provider       string // provider: what the call goes to
	ProviderDigest string // provider_digest: SHA-256 over what is started or dialled, lower-case hex
	Class          string // class: "read", … "external_mutation"

	Args     Args     // args: the commitment to the argument bytes
	Exec     *Exec    // exec: only for the audience exec
	Scopes   Scopes   // scopes: what the executor may let the call reach
	Decision Decision // decision: why the call is allowed
	Trace    string   // trace: W3C traceparent of the call; may be empty
}

// Principal is who acts.
type Principal struct {
	ID   string // within the namespace
	Kind string // "human", "agent", "trigger" or "service"
}

// Args commits to the argument bytes of the call without showing them.
type Args struct {
	Alg  string // AlgHMACSHA256
	Salt []byte // random, for this call only, 16 to 64 bytes
	MAC  []byte // HMAC-SHA256 of the bytes under the salt
	Size int64  // number of bytes
}

// AlgHMACSHA256 is the only algorithm of Args.
const AlgHMACSHA256 = "HMAC-SHA256"

// Exec fixes how a command runs. What is run is committed to by MAC, which
// CommitCommand computes; the rest stands here to be read.
type Exec struct {
	MAC       []byte        // over command line or argv, cwd, environment and stdin, under Args.Salt
	Cwd       string        // working folder as it was asked for
	Isolation string        // least level: "isolated", …, "host"
	Network   string        // "none" or "open"
	Timeout   time.Duration // timeout_ms
	MaxOutput int64         // bytes of output that are kept; 0 stands for the executor's default
}

// Scopes is what the executor may let the call reach. The zero value is nothing.
type Scopes struct {
	Paths         []PathScope // sandboxed commands: what is visible beside the fixed system folders
	Network       Network
	HostExecution bool     // run without isolation
	Secrets       []Secret // each for one destination only
	MCPRoot       *Folder  // the folder that an MCP server is told; nil for none
}

// Folder is a folder and its identity, so that one that was swapped for
// another under the same name is not taken for it.
type Folder struct {
	Path string // absolute
	Dev  uint64 // st_dev
	Ino  uint64 // st_ino
}

// PathScope is a folder or file with the access to it.
type PathScope struct {
	Folder
	Access string // "read" or "write", which includes read
}

// Network is what may be reached over the network.
type Network struct {
	Mode  string   // "none", "hosts" or "open"
	Hosts []string // for mode hosts: "host" or "host:port"
}

// Secret is a secret by name and the one place that it may go to.
type Secret struct {
	Name        string
	Destination string
}

// Decision says why the call is allowed.
type Decision struct {
	ID    string
	Cause string // "mode", "disposition", "grant", "policy" or "card"
	Card  string // for cause card
	Grant string // for cause grant
}

// Validate reports, as *Error with reason MALFORMED, the first claim that
// breaks the schema. Mint and Verify call it.
func (c *Claims) Validate() error {
	checks := []*Error{
		required("iss", c.Issuer), required("aud", c.Audience), required("jti", c.ID),
		required("deployment", c.Deployment), required("ns", c.Namespace),
		principal("sub", c.Subject), optional("asserted_by", c.AssertedBy),
		optional("agent", c.Agent), optional("conversation", c.Conversation), required("turn", c.Turn), required("call", c.Call),
		required("tool", c.Tool), hexDigest("fingerprint", c.Fingerprint), required("provider", c.Provider), hexDigest("provider_digest", c.ProviderDigest),
		oneOf("class", c.Class, "read", "compute", "network_search", "network_read", "workspace_write", "process", "dispatch",
			"persistent_instruction_write", "external_mutation"), optional("trace", c.Trace),
		c.validateTimes(), c.validateChain(), c.Args.validate(), c.Exec.validate(), c.Scopes.validate(), c.Decision.validate(),
	}
	for _, e := range checks {
		if e != nil {
			return e
		}
	}
	return nil
}

func (c *Claims) validateTimes() *Error {
	switch {
	case c.IssuedAt.Unix() <= 0:
		return malformed("iat", "a time after 1970 is needed")
	case c.NotBefore.Unix() <= 0:
		return malformed("nbf", "a time after 1970 is needed")
	case !c.NotBefore.Before(c.Expiry):
		return malformed("exp", "not after nbf")
	case c.Expiry.Sub(c.NotBefore) > MaxLifetime:
		return malformed("exp", "more than "+MaxLifetime.String()+" after nbf, the limit of a lifetime")
	}
	return nil
}

func (c *Claims) validateChain() *Error {
	if len(c.Chain) > MaxChain {
		return tooMany("chain", len(c.Chain), MaxChain)
	}
	for i, p := range c.Chain {
		if e := principal(at("chain", i), p); e != nil {
			return e
		}
	}
	return nil
}

func (a *Args) validate() *Error {
	switch {
	case a.Alg != AlgHMACSHA256:
		return malformed("args.alg", AlgHMACSHA256+" is the only algorithm")
	case len(a.Salt) < 16 || len(a.Salt) > 64:
		return malformed("args.salt", "16 to 64 bytes are needed")
	case len(a.MAC) != 32:
		return malformed("args.mac", "32 bytes are needed")
	case a.Size < 0:
		return malformed("args.size", "negative")
	}
	return nil
}

func (x *Exec) validate() *Error {
	switch {
	case x == nil:
		return nil
	case len(x.MAC) != 32:
		return malformed("exec.mac", "32 bytes are needed")
	case x.Cwd == "" || len(x.Cwd) > maxPath:
		return malformed("exec.cwd", "1 to "+strconv.Itoa(maxPath)+" bytes are needed")
	case x.Timeout <= 0 || x.Timeout%time.Millisecond != 0:
		return malformed("exec.timeout_ms", "whole milliseconds above 0 are needed")
	case x.MaxOutput < 0:
		return malformed("exec.max_output", "negative")
	}
	if e := oneOf("exec.isolation", x.Isolation, "isolated", "isolated-soft-caps", "restricted", "guarded", "host"); e != nil {
		return e
	}
	return oneOf("exec.network", x.Network, "none", "open")
}

func (s *Scopes) validate() *Error {
	switch {
	case len(s.Paths) > MaxPaths:
		return tooMany("scopes.paths", len(s.Paths), MaxPaths)
	case len(s.Network.Hosts) > MaxHosts:
		return tooMany("scopes.network.hosts", len(s.Network.Hosts), MaxHosts)
	case len(s.Secrets) > MaxSecrets:
		return tooMany("scopes.secrets", len(s.Secrets), MaxSecrets)
	}
	for i, p := range s.Paths {
		if e := p.Folder.validate(at("scopes.paths", i)); e != nil {
			return e
		}
		if e := oneOf(at("scopes.paths", i)+".access", p.Access, "read", "write"); e != nil {
			return e
		}
	}
	if e := oneOf("scopes.network.mode", s.Network.Mode, "none", "hosts", "open"); e != nil {
		return e
	}
	if (s.Network.Mode == "hosts") != (len(s.Network.Hosts) > 0) {
		return malformed("scopes.network.hosts", `hosts belong to the mode "hosts", which needs at least one`)
	}
	for i, h := range s.Network.Hosts {
		if e := required(at("scopes.network.hosts", i), h); e != nil {
			return e
		}
	}
	for i, secret := range s.Secrets {
		if e := required(at("scopes.secrets", i)+".name", secret.Name); e != nil {
			return e
		}
		if e := required(at("scopes.secrets", i)+".destination", secret.Destination); e != nil {
			return e
		}
	}
	if s.MCPRoot != nil {
		return s.MCPRoot.validate("scopes.mcp_root")
	}
	return nil
}

func (f Folder) validate(field string) *Error {
	if f.Path == "" || f.Path[0] != '/' || len(f.Path) > maxPath {
		return malformed(field+".path", "an absolute path of at most "+strconv.Itoa(maxPath)+" bytes is needed")
	}
	return nil
}

func (d *Decision) validate() *Error {
	if e := required("decision.id", d.ID); e != nil {
		return e
	}
	if e := oneOf("decision.cause", d.Cause, "mode", "disposition", "grant", "policy", "card"); e != nil {
		return e
	}
	if d.Cause == "card" && d.Card == "" {
		return malformed("decision.card", "the cause is a card, which one is missing")
	}
	if d.Cause == "grant" && d.Grant == "" {
		return malformed("decision.grant", "the cause is a grant, which one is missing")
	}
	if e := optional("decision.card", d.Card); e != nil {
		return e
	}
	return optional("decision.grant", d.Grant)
}

func principal(field string, p Principal) *Error {
	if e := required(field, p.ID); e != nil {
		return e
	}
	return oneOf(field+"_kind", p.Kind, "human", "agent", "trigger", "service")
}

func required(field, value string) *Error {
	if value == "" {
		return malformed(field, "missing or empty")
	}
	return optional(field, value)
}

func optional(field, value string) *Error {
	if len(value) > maxText {
		return malformed(field, strconv.Itoa(len(value))+" bytes, the limit is "+strconv.Itoa(maxText))
	}
	return nil
}

// oneOf checks a closed set: what is not listed is refused.
func oneOf(field, value string, set ...string) *Error {
	if slices.Contains(set, value) {
		return nil
	}
	return malformed(field, strconv.QuoteToASCII(value)+" is not a known value")
}

func hexDigest(field, value string) *Error {
	if len(value) != 64 {
		return malformed(field, "64 hexadecimal digits are needed")
	}
	for _, c := range []byte(value) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return malformed(field, "lower-case hexadecimal digits are needed")
		}
	}
	return nil
}

func tooMany(field string, got, limit int) *Error {
	return malformed(field, strconv.Itoa(got)+" entries, the limit is "+strconv.Itoa(limit))
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
