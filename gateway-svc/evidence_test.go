package gateway

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
)

// What a conductor reads from a writ is what a verifier reads, for reads and for effects; what is no writ is nothing.
func TestReadWrit(t *testing.T) {
	digest := strings.Repeat("0f", 32)
	for class, effect := range map[string]bool{"read": false, "network_search": false, "external_mutation": true, "process": true} {
		now := time.Now()
		writ, err := writtoken.Mint(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), "k", writtoken.Claims{
			Issuer: "urn:writ:d:permission", Audience: "urn:writ:d:mcp-host", ID: "w_1", IssuedAt: now, NotBefore: now, Expiry: now.Add(time.Minute),
			Deployment: "d", Namespace: "default", Subject: writtoken.Principal{ID: "alice", Kind: "agent"}, Conversation: "c \"ü\"", Turn: "t_1", Call: "c_1",
			Tool: "mcp.fs.write_file", Fingerprint: digest, Provider: "mcp.fs", ProviderDigest: digest, Class: class,
			Args: writtoken.NewArgs(make([]byte, 16), []byte(`{}`)), Scopes: writtoken.Scopes{Network: writtoken.Network{Mode: "none"}},
			Decision: writtoken.Decision{ID: "d_1", Cause: "mode"},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, want, err := writtoken.Unverified(writ)
		got, ok := readWrit(writ)
		if err != nil || !ok || got.Tool != want.Tool || got.Conversation != want.Conversation || !got.Expiry.Equal(want.Expiry) || got.Effect != effect {
			t.Errorf("%+v of %+v, %v", got, want, err)
		}
	}
	for _, payload := range []string{``, `{}`, `[]`, `{"tool":"x"}`, `{"tool":1,"exp":1}`, `{"tool":"x","exp":"1"}`, `{"tool":"x","exp":1`} {
		if w, ok := readWrit("e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".AA"); ok {
			t.Errorf("%s: %+v", payload, w)
		}
	}
	for _, text := range []string{"", ".", "..", "a.b.c", strings.Repeat("x", 1<<20)} {
		if _, ok := readWrit(text); ok {
			t.Errorf("%.20q is a writ", text)
		}
	}
}
