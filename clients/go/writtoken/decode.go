package writtoken

import (
	"encoding/base64"
	"strconv"
	"time"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

// object reads one JSON object strictly: each name at most once, none that the
// schema does not have, each value of its type. The first fault is kept, so
// that a reader is a list of fields without a branch after each.
type object struct {
	path    string
	members map[string][]byte
	fault   **Error
}

// open reads the members of raw; rawjson.Check has found no duplicates in it.
func open(raw []byte, path string, fault **Error) object {
	o := object{path: path, members: map[string][]byte{}, fault: fault}
	for m, err := range rawjson.Members(raw) {
		if err != nil {
			o.fail("", "an object is needed")
			break
		}
		o.members[m.Name] = m.Value
	}
	return o
}

func (o object) fail(name, detail string) {
	if *o.fault == nil {
		*o.fault = malformed(o.path+name, detail)
	}
}

// take removes a member. A missing one is a fault unless it is optional.
func (o object) take(name string, optional bool) (raw []byte, ok bool) {
	raw, ok = o.members[name]
	delete(o.members, name)
	if !ok && !optional {
		o.fail(name, "missing")
	}
	return raw, ok
}

// close makes a fault of every member that nobody took.
func (o object) close() {
	for name := range o.members {
		o.fail(strconv.QuoteToASCII(name), "unknown name")
		return
	}
}

func (o object) text(name string) string     { return o.readText(name, false) }
func (o object) textOpt(name string) string  { return o.readText(name, true) }
func (o object) number(name string) int64    { return o.readNumber(name, false) }
func (o object) numberOpt(name string) int64 { return o.readNumber(name, true) }

func (o object) readText(name string, optional bool) string {
	raw, ok := o.take(name, optional)
	if !ok {
		return ""
	}
	s, err := rawjson.String(raw)
	if err != nil {
		o.fail(name, "a string is needed")
	}
	return s
}

func (o object) readNumber(name string, optional bool) int64 {
	raw, ok := o.take(name, optional)
	if !ok {
		return 0
	}
	n, err := rawjson.Int64(raw)
	if err != nil {
		o.fail(name, "a whole number of at most 64 bits is needed")
	}
	return n
}

func (o object) flag(name string) bool {
	raw, ok := o.take(name, false)
	if !ok {
		return false
	}
	v, err := rawjson.Boolean(raw)
	if err != nil {
		o.fail(name, "true or false is needed")
	}
	return v
}

func (o object) bytes(name string) []byte {
	b, ok := decode(o.text(name))
	if !ok {
		o.fail(name, "canonical base64url without padding is needed")
	}
	return b
}

// uint64 reads a number that is written as text (see wireFolder).
func (o object) uint64(name string) uint64 {
	s := o.text(name)
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s != strconv.FormatUint(n, 10) {
		o.fail(name, "a string of decimal digits is needed")
	}
	return n
}

func (o object) child(name string) object {
	raw, _ := o.take(name, false)
	return open(raw, o.path+name+".", o.fault)
}

// each calls read for every element of an array.
func (o object) each(name string, optional bool, read func(raw []byte, path string)) {
	raw, ok := o.take(name, optional)
	if !ok {
		return
	}
	i := 0
	for element, err := range rawjson.Elements(raw) {
		if err != nil {
			o.fail(name, "a list is needed")
			return
		}
		read(element, at(o.path+name, i))
		i++
	}
}

// decodeClaims reads the payload of a token.
func decodeClaims(payload []byte) (*Claims, error) {
	if err := rawjson.CheckObject(payload, rawjson.Limits{MaxBytes: MaxTokenBytes, MaxDepth: 8}); err != nil {
		return nil, &Error{Reason: ReasonMalformed, Detail: "claims: " + err.Error(), cause: err}
	}
	var fault *Error
	o := open(payload, "", &fault)
	c := &Claims{
		Issuer: o.text("iss"), Audience: o.text("aud"), ID: o.text("jti"),
		IssuedAt: seconds(o.number("iat")), NotBefore: seconds(o.number("nbf")), Expiry: seconds(o.number("exp")),
		Deployment: o.text("deployment"), Namespace: o.text("ns"),
		Subject: Principal{o.text("sub"), o.text("sub_kind")}, AssertedBy: o.textOpt("asserted_by"),
		Agent: o.textOpt("agent"), Conversation: o.textOpt("conversation"), Turn: o.text("turn"), Call: o.text("call"),
		Tool: o.text("tool"), Fingerprint: o.text("fingerprint"),
		Provider: o.text("provider"), ProviderDigest: o.text("provider_digest"), Class: o.text("class"),
		Trace: o.textOpt("trace"),
	}
	o.each("chain", true, func(raw []byte, path string) {
		p := open(raw, path+".", &fault)
		c.Chain = append(c.Chain, Principal{p.text("id"), p.text("kind")})
		p.close()
	})
	a := o.child("args")
	c.Args = Args{a.text("alg"), a.bytes("salt"), a.bytes("mac"), a.number("size")}
	a.close()
	if _, ok := o.members["exec"]; ok {
		c.Exec = decodeExec(o.child("exec"))
	}
	c.Scopes = decodeScopes(o.child("scopes"))
	d := o.child("decision")
	c.Decision = Decision{d.text("id"), d.text("cause"), d.textOpt("card"), d.textOpt("grant")}
	d.close()
	o.close()
	if fault != nil {
		return nil, fault
	}
	return c, c.Validate()
}

// maxTimeoutMS keeps a number from overflowing a time.Duration.
const maxTimeoutMS = 24 * 60 * 60 * 1000

func decodeExec(o object) *Exec {
	x := &Exec{MAC: o.bytes("mac"), Cwd: o.text("cwd"), Isolation: o.text("isolation"), Network: o.text("network"),
		MaxOutput: o.numberOpt("max_output")}
	ms := o.number("timeout_ms")
	if ms > maxTimeoutMS {
		o.fail("timeout_ms", "more than a day")
		ms = 0
	}
	x.Timeout = time.Duration(ms) * time.Millisecond
	o.close()
	return x
}

func decodeScopes(o object) Scopes {
	s := Scopes{HostExecution: o.flag("host_execution")}
	o.each("paths", false, func(raw []byte, path string) {
		p := open(raw, path+".", o.fault)
		s.Paths = append(s.Paths, PathScope{decodeFolder(p), p.text("access")})
		p.close()
	})
	n := o.child("network")
	s.Network.Mode = n.text("mode")
	n.each("hosts", false, func(raw []byte, path string) {
		host, err := rawjson.String(raw)
		if err != nil && *o.fault == nil {
			*o.fault = malformed(path, "a string is needed")
		}
		s.Network.Hosts = append(s.Network.Hosts, host)
	})
	n.close()
	o.each("secrets", false, func(raw []byte, path string) {
		p := open(raw, path+".", o.fault)
		s.Secrets = append(s.Secrets, Secret{p.text("name"), p.text("destination")})
		p.close()
	})
	if raw, ok := o.take("mcp_root", false); ok && rawjson.TypeOf(raw) != rawjson.Null {
		p := open(raw, o.path+"mcp_root.", o.fault)
		root := decodeFolder(p)
		s.MCPRoot = &root
		p.close()
	}
	o.close()
	return s
}

func decodeFolder(o object) Folder {
	return Folder{Path: o.text("path"), Dev: o.uint64("dev"), Ino: o.uint64("ino")}
}

func seconds(n int64) time.Time { return time.Unix(n, 0).UTC() }

// decode reads base64url without padding, in the one spelling that encode
// gives. (The standard decoder passes over line breaks and, unless strict,
// over stray bits at the end: two texts for the same token.)
func decode(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return b, err == nil && encode(b) == s
}
