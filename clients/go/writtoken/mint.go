package writtoken

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

// typ is the media type of a writ, so that no other JWT is ever taken for one.
const typ = "writ+jwt"

// Mint signs the claims. The same key and claims give the same token, byte for
// byte. It refuses, as Verify would, claims that break the schema.
func Mint(key ed25519.PrivateKey, kid string, c Claims) (string, error) {
	if len(key) != ed25519.PrivateKeySize {
		return "", malformed("kid", "the signing key is no Ed25519 key")
	}
	if e := required("kid", kid); e != nil {
		return "", e
	}
	if err := c.Validate(); err != nil {
		return "", err
	}
	header := append([]byte(`{"alg":"EdDSA","typ":"`+typ+`","kid":`), rawjson.AppendString(nil, kid)...)
	payload, err := json.Marshal(c.wire())
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	token := enc.AppendEncode(nil, append(header, '}'))
	token = enc.AppendEncode(append(token, '.'), payload)
	signature := ed25519.Sign(key, token)
	token = enc.AppendEncode(append(token, '.'), signature)
	if len(token) > MaxTokenBytes {
		return "", malformed("", strconv.Itoa(len(token))+" bytes, the limit of a token is "+strconv.Itoa(MaxTokenBytes))
	}
	return string(token), nil
}

// The wire types give the claims their names. Reading goes through decode.go:
// encoding/json would take "ISS" for "iss" and pass over what it does not know.
type wireClaims struct {
	Iss            string          `json:"iss"`
	Aud            string          `json:"aud"`
	Jti            string          `json:"jti"`
	Iat            int64           `json:"iat"`
	Nbf            int64           `json:"nbf"`
	Exp            int64           `json:"exp"`
	Deployment     string          `json:"deployment"`
	Ns             string          `json:"ns"`
	Sub            string          `json:"sub"`
	SubKind        string          `json:"sub_kind"`
	Chain          []wirePrincipal `json:"chain,omitempty"`
	AssertedBy     string          `json:"asserted_by,omitempty"`
	Agent          string          `json:"agent,omitempty"`
	Conversation   string          `json:"conversation,omitempty"`
	Turn           string          `json:"turn"`
	Call           string          `json:"call"`
	Tool           string          `json:"tool"`
	Fingerprint    string          `json:"fingerprint"`
	Provider       string          `json:"provider"`
	ProviderDigest string          `json:"provider_digest"`
	Class          string          `json:"class"`
	Args           wireArgs        `json:"args"`
	Exec           *wireExec       `json:"exec,omitempty"`
	Scopes         wireScopes      `json:"scopes"`
	Decision       wireDecision    `json:"decision"`
	Trace          string          `json:"trace,omitempty"`
}

type wirePrincipal struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

type wireArgs struct {
	Alg  string `json:"alg"`
	Salt string `json:"salt"`
	MAC  string `json:"mac"`
	Size int64  `json:"size"`
}

type wireExec struct {
	MAC       string `json:"mac"`
	Cwd       string `json:"cwd"`
	Isolation string `json:"isolation"`
	Network   string `json:"network"`
	TimeoutMS int64  `json:"timeout_ms"`
	MaxOutput int64  `json:"max_output,omitempty"`
}

type wireScopes struct {
	Paths         []wirePath   `json:"paths"`
	Network       wireNetwork  `json:"network"`
	HostExecution bool         `json:"host_execution"`
	Secrets       []wireSecret `json:"secrets"`
	MCPRoot       *wireFolder  `json:"mcp_root"`
}

// wireFolder has device and inode as text: they may use all 64 bits, and most
// JSON readers lose what is above 53.
type wireFolder struct {
	Path string `json:"path"`
	Dev  string `json:"dev"`
	Ino  string `json:"ino"`
}

type wirePath struct {
	wireFolder
	Access string `json:"access"`
}

type wireNetwork struct {
	Mode  string   `json:"mode"`
	Hosts []string `json:"hosts"`
}

type wireSecret struct {
	Name        string `json:"name"`
	Destination string `json:"destination"`
}

type wireDecision struct {
	ID    string `json:"id"`
	Cause string `json:"cause"`
	Card  string `json:"card,omitempty"`
	Grant string `json:"grant,omitempty"`
}

func (c *Claims) wire() wireClaims {
	w := wireClaims{
		Iss: c.Issuer, Aud: c.Audience, Jti: c.ID,
		Iat: c.IssuedAt.Unix(), Nbf: c.NotBefore.Unix(), Exp: ceilSecond(c.Expiry).Unix(),
		Deployment: c.Deployment, Ns: c.Namespace, Sub: c.Subject.ID, SubKind: c.Subject.Kind, AssertedBy: c.AssertedBy,
		Agent: c.Agent, Conversation: c.Conversation, Turn: c.Turn, Call: c.Call,
		Tool: c.Tool, Fingerprint: c.Fingerprint, Provider: c.Provider, ProviderDigest: c.ProviderDigest, Class: c.Class,
		Args:     wireArgs{c.Args.Alg, encode(c.Args.Salt), encode(c.Args.MAC), c.Args.Size},
		Scopes:   c.Scopes.wire(),
		Decision: wireDecision(c.Decision),
		Trace:    c.Trace,
	}
	for _, p := range c.Chain {
		w.Chain = append(w.Chain, wirePrincipal(p))
	}
	if x := c.Exec; x != nil {
		w.Exec = &wireExec{encode(x.MAC), x.Cwd, x.Isolation, x.Network, x.Timeout.Milliseconds(), x.MaxOutput}
	}
	return w
}

func (s *Scopes) wire() wireScopes {
	w := wireScopes{
		Paths:         []wirePath{},
		Network:       wireNetwork{s.Network.Mode, append([]string{}, s.Network.Hosts...)},
		HostExecution: s.HostExecution,
		Secrets:       []wireSecret{},
	}
	for _, p := range s.Paths {
		w.Paths = append(w.Paths, wirePath{p.Folder.wire(), p.Access})
	}
	for _, secret := range s.Secrets {
		w.Secrets = append(w.Secrets, wireSecret(secret))
	}
	if s.MCPRoot != nil {
		root := s.MCPRoot.wire()
		w.MCPRoot = &root
	}
	return w
}

func (f Folder) wire() wireFolder {
	return wireFolder{f.Path, strconv.FormatUint(f.Dev, 10), strconv.FormatUint(f.Ino, 10)}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// ceilSecond keeps an expiry from becoming earlier than it was asked for.
func ceilSecond(t time.Time) time.Time {
	if t.Nanosecond() == 0 {
		return t
	}
	return t.Truncate(time.Second).Add(time.Second)
}
