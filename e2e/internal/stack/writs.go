package stack

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"path/filepath"
	"strings"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/receipt"
)

// Issuer is the issuer of this deployment's writs.
func (s *Stack) Issuer() string { return "urn:writ:" + s.Deployment + ":permission" }

// Audience is the audience of an executor, "mcp-host" or "exec".
func (s *Stack) Audience(executor string) string { return "urn:writ:" + s.Deployment + ":" + executor }

// WritKey is the key with which the permission service signs now: a test that holds it can mint writs that differ from
// good ones in one thing only.
func (s *Stack) WritKey() (key ed25519.PrivateKey, kid string) {
	s.t.Helper()
	answer, err := s.Client(Caller).Authorization.ListKeys(s.Context(), &permissionv1.ListKeysRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range answer.GetKeys() {
		if k.GetRetireTime() != nil {
			continue
		}
		text, err := home.ReadPrivate(filepath.Join(s.Home.Root, "keys", "writs", "writ-"+k.GetKid()+".key"))
		if err != nil {
			continue // the next key, whose private half may lie elsewhere
		}
		seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(seed) != ed25519.SeedSize {
			s.t.Fatalf("writ key %s: %v", k.GetKid(), err)
		}
		return ed25519.NewKeyFromSeed(seed), k.GetKid()
	}
	s.t.Fatalf("none of the %d published keys lies in the home", len(answer.GetKeys()))
	return nil, ""
}

// Claims is what a good writ for the tool says, for the arguments and with a call's id of its own.
func (s *Stack) Claims(turn *registryv1.Turn, tool *registryv1.TurnTool, executor, class string, arguments []byte) writtoken.Claims {
	s.t.Helper()
	salt, err := writtoken.NewSalt(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	id := tool.GetTool().GetIdentity()
	c := writtoken.Claims{
		Issuer: s.Issuer(), Audience: s.Audience(executor), ID: ids.New("w_", rand.Reader), IssuedAt: now, NotBefore: now, Expiry: now.Add(time.Minute),
		Deployment: s.Deployment, Namespace: auth.DefaultNamespace, Subject: writtoken.Principal{ID: "caller", Kind: "agent"},
		Conversation: turn.GetConversation(), Turn: turn.GetId(), Call: ids.New("c_", rand.Reader),
		Tool: id.GetTool(), Fingerprint: id.GetWireFingerprint(), Provider: id.GetProvider(), ProviderDigest: id.GetProviderDigest(),
		Class: class, Args: writtoken.NewArgs(salt, arguments), Scopes: writtoken.Scopes{Network: writtoken.Network{Mode: "none"}},
		Decision: writtoken.Decision{ID: ids.New("d_", rand.Reader), Cause: "mode"},
	}
	if executor == "exec" {
		c.Exec = s.execClaims(salt, arguments)
	}
	return c
}

func (s *Stack) execClaims(salt, arguments []byte) *writtoken.Exec {
	s.t.Helper()
	c, err := command.Parse(arguments)
	if err != nil {
		s.t.Fatal(err)
	}
	in := writtoken.CommandInput{Line: c.Line, Argv: c.Argv, Cwd: c.Cwd, Stdin: c.Stdin}
	return &writtoken.Exec{MAC: writtoken.CommitCommand(salt, in), Cwd: c.Cwd, Isolation: c.Isolation, Network: c.Network, Timeout: c.Timeout}
}

// Mint signs claims.
func (s *Stack) Mint(key ed25519.PrivateKey, kid string, c writtoken.Claims) string {
	s.t.Helper()
	token, err := writtoken.Mint(key, kid, c)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// Receipt reads a receipt with its opening and verifies both signatures with public keys only. The credential must be
// allowed to see it.
func (s *Stack) Receipt(credential, name string) (receipt.Facts, *evidencev1.GetReceiptResponse) {
	s.t.Helper()
	c := s.Client(credential)
	got, err := c.Receipts.GetReceipt(s.Context(), &evidencev1.GetReceiptRequest{Name: name, WithOpening: true})
	if err != nil {
		s.t.Fatalf("receipt %s: %v", name, err)
	}
	keys, err := c.Receipts.ListReceiptKeys(s.Context(), &evidencev1.ListReceiptKeysRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	facts, _, err := receipt.Check(got.GetReceipt().GetStatementEnvelope(), got.GetReceipt().GetCountersignatureEnvelope(), Finder(keys.GetKeys()))
	if err != nil {
		s.t.Fatalf("receipt %s does not verify: %v", name, err)
	}
	return facts, got
}

// Finder looks a public key up in a list.
func Finder(keys []*evidencev1.ReceiptKey) func(string) (string, ed25519.PublicKey, bool) {
	return func(id string) (string, ed25519.PublicKey, bool) {
		for _, k := range keys {
			if k.GetKeyId() == id {
				return k.GetService(), k.GetPublicKey(), true
			}
		}
		return "", nil, false
	}
}
