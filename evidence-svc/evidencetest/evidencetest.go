// Package evidencetest runs an evidence-svc for tests of what claims and seals, as net/http/httptest does for HTTP:
// with a permission service's key that it trusts, and signing keys for the services of Writ.
package evidencetest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/testkit"
)

// What stands in the writs that a Server trusts.
const (
	Deployment = "d_test"
	Issuer     = "urn:writ:" + Deployment + ":permission"
)

// Services are the services that may sign.
func Services() []string { return []string{"permission", "gateway", "mcp-host", "exec"} }

// Audience is the audience of an executor, "" for a service that executes nothing.
func Audience(service string) string {
	if service == "mcp-host" || service == "exec" {
		return "urn:writ:" + Deployment + ":" + service
	}
	return ""
}

// Key is the fixed signing key of a service, and its id. For tests only: it is made of the name.
func Key(service string) (ed25519.PrivateKey, string) {
	seed := sha256.Sum256([]byte("evidencetest " + service))
	key := ed25519.NewKeyFromSeed(seed[:])
	return key, writtoken.KeyID(key.Public().(ed25519.PublicKey))
}

// Config adds to cfg what a Server trusts.
func Config(cfg evidence.Config) evidence.Config {
	if cfg.Signers == nil {
		cfg.Signers = map[string]evidence.Signer{}
		for _, name := range Services() {
			key, id := Key(name)
			cfg.Signers[name] = evidence.Signer{
				Keys: map[string]ed25519.PublicKey{id: key.Public().(ed25519.PublicKey)}, Audience: Audience(name),
			}
		}
	}
	if cfg.TrustedIssuers == nil {
		key, id := Key("writs")
		cfg.TrustedIssuers = map[string]map[string]ed25519.PublicKey{Issuer: {id: key.Public().(ed25519.PublicKey)}}
	}
	if cfg.Key == nil {
		cfg.Key, cfg.KeyID = Key("evidence")
	}
	return cfg
}

// Server is a running evidence-svc on an in-process channel.
type Server struct {
	*evidence.Server
	Channel *inproc.Channel
	stop    func()
}

// New runs a server until the test ends. The channel knows the tokens "caller" and "approver" and those of creds (see
// testkit.Channel).
func New(t testing.TB, cfg evidence.Config, creds []auth.Credential, opts ...evidence.Option) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	inner, err := evidence.New(ctx, Config(cfg), opts...)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	channel, _ := testkit.Channel(t, creds...)
	inner.Register(channel)
	ran := make(chan error, 1)
	go func() { ran <- inner.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		closing, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		if err := inner.Close(closing); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return &Server{Server: inner, Channel: channel, stop: stop}
}

// Stop ends the server before the test ends.
func (s *Server) Stop() { s.stop() }

// As is a connection that is authenticated as the service.
func (s *Server) As(service string) grpc.ClientConnInterface { return s.Channel.As(service) }

// Claims is the client of ClaimService for an executor.
func (s *Server) Claims(service string) evidencev1.ClaimServiceClient {
	return evidencev1.NewClaimServiceClient(s.As(service))
}

// Sealer signs and seals as the service.
func (s *Server) Sealer(service string) *receipt.Sealer {
	key, id := Key(service)
	return receipt.NewSealer(evidencev1.NewReceiptServiceClient(s.As(service)), service, key, id)
}

// Receipts is the client of ReceiptService for whoever the token belongs to.
func (s *Server) Receipts(token string) evidencev1.ReceiptServiceClient {
	return evidencev1.NewReceiptServiceClient(s.Channel.WithToken(token))
}

// Writ is the claims of a writ for a call of run_command by "caller" with these arguments, good for a minute. Change it
// before Mint.
func Writ(arguments []byte) writtoken.Claims {
	now := time.Now()
	salt, err := writtoken.NewSalt(rand.Reader)
	if err != nil {
		panic(err)
	}
	return writtoken.Claims{
		Issuer: Issuer, Audience: Audience("exec"), ID: ids.New("w_", rand.Reader), IssuedAt: now, NotBefore: now, Expiry: now.Add(time.Minute),
		Deployment: Deployment, Namespace: auth.DefaultNamespace, Subject: writtoken.Principal{ID: "caller", Kind: "agent"},
		Conversation: "conversation", Turn: ids.New("t_", rand.Reader), Call: ids.New("c_", rand.Reader),
		Tool: "run_command", Fingerprint: strings.Repeat("a1", 32), Provider: "builtin", ProviderDigest: strings.Repeat("b2", 32),
		Class: "process", Args: writtoken.NewArgs(salt, arguments), Scopes: writtoken.Scopes{Network: writtoken.Network{Mode: "none"}},
		Decision: writtoken.Decision{ID: ids.New("a_", rand.Reader), Cause: "mode"},
		Trace:    "00-" + traceID() + "-00f067aa0ba902b7-01",
	}
}

// Mint signs a writ with the trusted key.
func Mint(t testing.TB, c writtoken.Claims) string {
	t.Helper()
	key, id := Key("writs")
	token, err := writtoken.Mint(key, id, c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func traceID() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic(err)
	}
	return hex.EncodeToString(b)
}
