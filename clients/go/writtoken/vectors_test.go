package writtoken_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/clients/go/rawjson"
	"github.com/writ-dev/writ/clients/go/writtoken"
)

var update = flag.Bool("update", false, "write the vectors anew")

const vectorDir = "../../../proto/testvectors/writ"

// vector is one file in proto/testvectors/writ: what an executor is given, and
// what it must answer. The README there explains the fields.
type vector struct {
	Description string          `json:"description"`
	Verifier    vectorVerifier  `json:"verifier"`
	Token       string          `json:"token"`
	Presented   vectorPresented `json:"presented"`
	Accept      bool            `json:"accept"`
	Reason      string          `json:"reason,omitempty"`
	Claims      json.RawMessage `json:"claims,omitempty"`
}

type vectorVerifier struct {
	Issuer     string   `json:"issuer"`
	Audience   string   `json:"audience"`
	Namespaces []string `json:"namespaces"`
	Now        int64    `json:"now"`
	Skew       int64    `json:"skew_seconds"`
}

type vectorPresented struct {
	Tool           string         `json:"tool"`
	Fingerprint    string         `json:"fingerprint"`
	ProviderDigest string         `json:"provider_digest"`
	Arguments      string         `json:"arguments"`
	Command        *vectorCommand `json:"command,omitempty"`
	Paths          []vectorPath   `json:"paths,omitempty"`
}

type vectorCommand struct {
	Line    string      `json:"line,omitempty"`
	Argv    []string    `json:"argv,omitempty"`
	Cwd     string      `json:"cwd"`
	Env     [][2]string `json:"env"`
	Stdin   *string     `json:"stdin"`
	Network string      `json:"network"`
}

type vectorPath struct {
	Path  string `json:"path"`
	Dev   uint64 `json:"dev,string"`
	Ino   uint64 `json:"ino,string"`
	Write bool   `json:"write"`
}

func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	keyFile, err := os.ReadFile(filepath.Join(vectorDir, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := writtoken.ParseKeySet(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(vectorDir, "[0-9]*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no vectors", err)
	}
	covered := map[string]bool{}
	for _, file := range files {
		var v vector
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err != nil {
			t.Fatal(file, err)
		}
		covered[v.Reason] = true
		t.Run(filepath.Base(file), func(t *testing.T) { v.run(t, keys) })
	}
	for _, r := range writtoken.Reasons() {
		if !covered[string(r)] {
			t.Errorf("no vector for %s", r)
		}
	}
}

func (v vector) run(t *testing.T, keys writtoken.StaticKeys) {
	verifier := &writtoken.Verifier{
		Issuers:  map[string]writtoken.KeySource{v.Verifier.Issuer: keys},
		Audience: v.Verifier.Audience, Namespaces: v.Verifier.Namespaces,
		Now: func() time.Time { return time.Unix(v.Verifier.Now, 0) }, Skew: time.Duration(v.Verifier.Skew) * time.Second,
	}
	c, err := verifier.Verify(context.Background(), v.Token)
	if err == nil {
		err = v.Presented.check(c)
	}
	if v.Accept != (err == nil) {
		t.Fatalf("%s: %v", v.Description, err)
	}
	if err != nil {
		if got := reasonOf(t, err); string(got) != v.Reason {
			t.Fatalf("%s: %v, want %s", v.Description, err, v.Reason)
		}
		return
	}
	payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(v.Token, ".")[1])
	var written bytes.Buffer
	if err := json.Compact(&written, v.Claims); err != nil || written.String() != string(payload) {
		t.Fatalf("the claims of the file are not those of its token: %s", payload)
	}
}

func (p vectorPresented) check(c *writtoken.Claims) error {
	if err := c.CheckTool(p.Tool, p.Fingerprint, p.ProviderDigest); err != nil {
		return err
	}
	if err := c.CheckArguments([]byte(p.Arguments)); err != nil {
		return err
	}
	if p.Command != nil {
		in := writtoken.CommandInput{Line: p.Command.Line, Argv: p.Command.Argv, Cwd: p.Command.Cwd}
		for _, e := range p.Command.Env {
			in.Env = append(in.Env, writtoken.EnvVar{Name: e[0], Value: e[1]})
		}
		if p.Command.Stdin != nil {
			in.Stdin = []byte(*p.Command.Stdin)
		}
		if err := c.CheckCommand(in, p.Command.Network); err != nil {
			return err
		}
	}
	for _, f := range p.Paths {
		if err := c.CheckPath(writtoken.Folder{Path: f.Path, Dev: f.Dev, Ino: f.Ino}, f.Write); err != nil {
			return err
		}
	}
	return nil
}

const goodHeader = `{"alg":"EdDSA","typ":"writ+jwt","kid":"` + kid + `"}`

// payloadOf is the claims as Mint writes them.
func payloadOf(t *testing.T, c writtoken.Claims) string {
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(mint(t, c), ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeVectors(t *testing.T) {
	number := 0
	write := func(name string, v vector) {
		number++
		v.Accept = v.Reason == ""
		if v.Accept {
			payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(v.Token, ".")[1])
			v.Claims = payload
		}
		writeJSON(t, twoDigits(number)+"-"+name+".json", v)
	}
	base := vector{
		Verifier:  vectorVerifier{issuer, audHost, []string{"default"}, start().Unix() + 10, 5},
		Presented: vectorPresented{Tool: "mcp.fs.read", Fingerprint: strings.Repeat("ab", 32), ProviderDigest: strings.Repeat("cd", 32), Arguments: arguments},
	}
	command := base
	stdin := "x"
	command.Verifier.Audience = audExec
	command.Presented.Tool = "run_command"
	command.Presented.Command = &vectorCommand{Argv: []string{"make", "test"}, Cwd: "src", Env: [][2]string{{"A", "1"}}, Stdin: &stdin, Network: "open"}
	command.Presented.Paths = []vectorPath{{"/work/p", 2049, 18446744073709551615, true}, {"/work/ro", 2049, 7, false}}

	ok := base
	ok.Description, ok.Token = "A writ for a call of an MCP tool, presented with what it is for.", mint(t, claims())
	write("accept-mcp-call", ok)
	ok = command
	ok.Description, ok.Token = "A writ for a command, with every claim set.", mint(t, full())
	write("accept-command", ok)

	for _, r := range refusedTokens(t) {
		v := base
		v.Description, v.Token, v.Reason = r.description, r.token, string(r.reason)
		write(r.name, v)
	}
	writePresented(base, command, mint(t, claims()), mint(t, full()), write)

	set := writtoken.AppendKeySet(nil, map[string]ed25519.PublicKey{kid: testKey().Public().(ed25519.PublicKey)})
	list, _, err := rawjson.Get(set, "keys")
	if err != nil {
		t.Fatal(err)
	}
	writeJSON(t, "keys.json", map[string]any{
		"comment":  "The test key. Its private half is made of seed_hex (RFC 8032): never trust it outside tests.",
		"seed_hex": hex.EncodeToString(testKey().Seed()),
		"keys":     json.RawMessage(list),
	})
}

type refused struct {
	name        string
	reason      writtoken.Reason
	description string
	token       string
}

// refusedTokens are tokens that Verify alone refuses.
func refusedTokens(t *testing.T) []refused {
	key, payload, good := testKey(), payloadOf(t, claims()), mint(t, claims())
	parts := strings.Split(good, ".")
	header := func(h string) string { return sign(h, payload, key) }
	body := func(old, new string) string {
		changed := strings.Replace(payload, old, new, 1)
		if changed == payload {
			t.Fatalf("%s is not in the payload", old)
		}
		return sign(goodHeader, changed, key)
	}
	foreign := claims()
	foreign.Audience = "urn:writ:d2:mcp-host"
	tenant := claims()
	tenant.Namespace = "other"
	early, late, stranger := claims(), claims(), claims()
	early.NotBefore, early.Expiry = start().Add(time.Minute), start().Add(2*time.Minute)
	late.NotBefore, late.Expiry = start().Add(-2*time.Minute), start().Add(-time.Minute)
	stranger.Issuer = "urn:writ:d2:permission"
	forged, err := writtoken.Mint(otherKey(), kid, claims())
	if err != nil {
		t.Fatal(err)
	}
	unknownKid, err := writtoken.Mint(otherKey(), "k9", claims())
	if err != nil {
		t.Fatal(err)
	}
	return []refused{
		{"no-writ", writtoken.ReasonNoWrit, "No token.", ""},
		{"two-parts", writtoken.ReasonMalformed, "The signature is missing.", parts[0] + "." + parts[1]},
		{"padded", writtoken.ReasonMalformed, "base64 padding.", good + "="},
		{"line-break", writtoken.ReasonMalformed, "A line break inside, which some decoders pass over.", parts[0] + "." + parts[1][:8] + "\n" + parts[1][8:] + "." + parts[2]},
		{"stray-bits", writtoken.ReasonMalformed, "The last character of the signature has bits that mean nothing; a lax decoder gives the same signature.", strayBits(good)},
		{"short-signature", writtoken.ReasonMalformed, "A signature of 63 bytes.", parts[0] + "." + parts[1] + "." + parts[2][:84]},
		{"duplicate-claim", writtoken.ReasonMalformed, "The claim tool stands twice.", body(`"tool":`, `"tool":"mcp.fs.read","tool":`)},
		{"duplicate-claim-escaped", writtoken.ReasonMalformed, "The claim tool stands twice, once written with an escape.", body(`"tool":`, `"to\u006fl":"mcp.fs.write","tool":`)},
		{"claim-in-capitals", writtoken.ReasonMalformed, "TOOL is another name than tool.", body(`"tool":`, `"TOOL":`)},
		{"unknown-claim", writtoken.ReasonMalformed, "A claim that the schema does not have.", body(`"tool":`, `"bypass":true,"tool":`)},
		{"missing-claim", writtoken.ReasonMalformed, "No class.", body(`"class":"read",`, ``)},
		{"unknown-class", writtoken.ReasonMalformed, "A class that nobody knows.", body(`"class":"read"`, `"class":"harmless"`)},
		{"time-as-text", writtoken.ReasonMalformed, "A time in quotes.", body(`"nbf":1800000000`, `"nbf":"1800000000"`)},
		{"time-with-fraction", writtoken.ReasonMalformed, "Times are whole seconds.", body(`"nbf":1800000000`, `"nbf":1800000000.5`)},
		{"lifetime-of-a-day", writtoken.ReasonMalformed, "More than an hour from nbf to exp.", body(`"exp":1800000060`, `"exp":1800086400`)},
		{"invalid-utf8", writtoken.ReasonMalformed, "A claim that is no UTF-8.", body(`"sub":"notes-bot"`, "\"sub\":\"\xff\"")},
		{"alg-none", writtoken.ReasonAlgorithm, "alg none without a signature.", b64(`{"alg":"none","typ":"writ+jwt","kid":"`+kid+`"}`) + "." + parts[1] + "."},
		{"alg-none-signed", writtoken.ReasonAlgorithm, "alg none, and a signature all the same.", header(`{"alg":"none","typ":"writ+jwt","kid":"` + kid + `"}`)},
		{"alg-hs256", writtoken.ReasonAlgorithm, "A MAC with the public key as its secret.", header(`{"alg":"HS256","typ":"writ+jwt","kid":"` + kid + `"}`)},
		{"alg-missing", writtoken.ReasonAlgorithm, "No alg.", header(`{"typ":"writ+jwt","kid":"` + kid + `"}`)},
		{"header-jwk", writtoken.ReasonHeader, "A key inside the token.", header(goodHeader[:len(goodHeader)-1] + `,"jwk":{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}`)},
		{"header-jku", writtoken.ReasonHeader, "A link to keys.", header(goodHeader[:len(goodHeader)-1] + `,"jku":"https://example.org/keys"}`)},
		{"header-x5u", writtoken.ReasonHeader, "A link to a certificate.", header(goodHeader[:len(goodHeader)-1] + `,"x5u":"https://example.org/cert"}`)},
		{"header-crit", writtoken.ReasonHeader, "A critical extension.", header(goodHeader[:len(goodHeader)-1] + `,"crit":["b64"],"b64":false}`)},
		{"header-duplicate-alg", writtoken.ReasonHeader, "alg stands twice.", header(`{"alg":"none","alg":"EdDSA","typ":"writ+jwt","kid":"` + kid + `"}`)},
		{"header-typ-jwt", writtoken.ReasonHeader, "Another kind of token, signed by the same key.", header(`{"alg":"EdDSA","typ":"JWT","kid":"` + kid + `"}`)},
		{"header-no-kid", writtoken.ReasonHeader, "No kid.", header(`{"alg":"EdDSA","typ":"writ+jwt"}`)},
		{"unknown-issuer", writtoken.ReasonUnknownIssuer, "Another deployment's permission service.", mint(t, stranger)},
		{"unknown-key", writtoken.ReasonUnknownKey, "A kid that the issuer does not publish.", unknownKid},
		{"forged", writtoken.ReasonSignature, "The right kid, signed by another key.", forged},
		{"changed-claims", writtoken.ReasonSignature, "Claims changed after signing.", parts[0] + "." + b64(strings.Replace(payload, "mcp.fs.read", "mcp.fs.read2", 1)) + "." + parts[2]},
		{"audience", writtoken.ReasonAudience, "Meant for another deployment's executor.", mint(t, foreign)},
		{"namespace", writtoken.ReasonNamespace, "Of another namespace.", mint(t, tenant)},
		{"not-yet-valid", writtoken.ReasonNotYetValid, "Used a minute too early.", mint(t, early)},
		{"expired", writtoken.ReasonExpired, "Used a minute too late.", mint(t, late)},
	}
}

// writePresented writes vectors of a good token with something else than it is for.
func writePresented(base, command vector, token, commandToken string, write func(string, vector)) {
	refuse := func(name string, reason writtoken.Reason, description string, from vector, token string, change func(*vectorPresented)) {
		v := from
		v.Description, v.Token, v.Reason = description, token, string(reason)
		if from.Presented.Command != nil {
			c := *from.Presented.Command
			v.Presented.Command = &c
			v.Presented.Paths = slices.Clone(from.Presented.Paths)
		}
		change(&v.Presented)
		write(name, v)
	}
	refuse("tool", writtoken.ReasonTool, "Another tool.", base, token, func(p *vectorPresented) { p.Tool = "mcp.fs.write" })
	refuse("provider", writtoken.ReasonProvider, "The server's executable has changed.", base, token, func(p *vectorPresented) { p.ProviderDigest = strings.Repeat("ce", 32) })
	refuse("fingerprint", writtoken.ReasonFingerprint, "The tool's schema has changed.", base, token, func(p *vectorPresented) { p.Fingerprint = strings.Repeat("ac", 32) })
	refuse("arguments-one-digit", writtoken.ReasonArguments, "9007199254740992 with a writ for 9007199254740993.", base, token, func(p *vectorPresented) { p.Arguments = strings.Replace(arguments, "993", "992", 1) })
	refuse("arguments-space", writtoken.ReasonArguments, "The same value with one space more.", base, token, func(p *vectorPresented) { p.Arguments = strings.Replace(arguments, ":", ": ", 1) })
	refuse("command-argument", writtoken.ReasonArguments, "Another argument of the command.", command, commandToken, func(p *vectorPresented) { p.Command.Argv = []string{"make", "clean"} })
	refuse("command-boundary", writtoken.ReasonArguments, "The same bytes with another boundary between arguments.", command, commandToken, func(p *vectorPresented) { p.Command.Argv = []string{"maket", "est"} })
	refuse("command-as-line", writtoken.ReasonArguments, "A shell line instead of argv.", command, commandToken, func(p *vectorPresented) { p.Command.Argv, p.Command.Line = nil, "make test" })
	refuse("command-no-stdin", writtoken.ReasonArguments, "No stdin instead of some.", command, commandToken, func(p *vectorPresented) { p.Command.Stdin = nil })
	refuse("command-network", writtoken.ReasonScopes, "Another network than was asked for.", command, commandToken, func(p *vectorPresented) { p.Command.Network = "none" })
	refuse("path-unlisted", writtoken.ReasonScopes, "A path that is not listed.", command, commandToken, func(p *vectorPresented) { p.Paths[0].Path = "/etc" })
	refuse("path-swapped", writtoken.ReasonScopes, "The path is now another folder.", command, commandToken, func(p *vectorPresented) { p.Paths[0].Ino = 8 })
	refuse("path-write", writtoken.ReasonScopes, "Write access to a path that may be read.", command, commandToken, func(p *vectorPresented) { p.Paths[1].Write = true })
}

func writeJSON(t *testing.T, name string, v any) {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err == nil {
		err = os.WriteFile(filepath.Join(vectorDir, name), []byte(b.String()), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func twoDigits(n int) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }

// strayBits changes the bits of the last character that no byte uses: 64 bytes
// leave four of its six bits empty.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last|1])
}
