package writtoken_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
)

// The test key: its seed is the bytes 0, 1, … 31. It stands in the vectors and
// must never sign anything else.
const kid = "test-key-1"

func testKey() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	return ed25519.NewKeyFromSeed(seed)
}

func otherKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))
}

const (
	issuer    = "urn:writ:d1:permission"
	audExec   = "urn:writ:d1:exec"
	audHost   = "urn:writ:d1:mcp-host"
	arguments = `{"path":"a.txt","n":9007199254740993}`
)

func start() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

func salt() []byte { return []byte("0123456789abcdef0123456789abcdef") }

// claims is a writ for a call of an MCP tool.
func claims() writtoken.Claims {
	return writtoken.Claims{
		Issuer: issuer, Audience: audHost, ID: "w_1", IssuedAt: start(), NotBefore: start(), Expiry: start().Add(time.Minute),
		Deployment: "d1", Namespace: "default", Subject: writtoken.Principal{ID: "notes-bot", Kind: "agent"},
		Turn: "t_1", Call: "c_1",
		Tool: "mcp.fs.read", Fingerprint: strings.Repeat("ab", 32), Provider: "mcp.fs", ProviderDigest: strings.Repeat("cd", 32),
		Class: "read", Args: writtoken.NewArgs(salt(), []byte(arguments)),
		Scopes:   writtoken.Scopes{Network: writtoken.Network{Mode: "none"}},
		Decision: writtoken.Decision{ID: "d_1", Cause: "mode"},
	}
}

func input() writtoken.CommandInput {
	return writtoken.CommandInput{Argv: []string{"make", "test"}, Cwd: "src", Env: []writtoken.EnvVar{{Name: "A", Value: "1"}}, Stdin: []byte("x")}
}

// full is a writ for a command, with every claim set.
func full() writtoken.Claims {
	c := claims()
	c.Audience, c.Class = audExec, "process"
	c.Chain = []writtoken.Principal{{ID: "alice", Kind: "human"}}
	c.AssertedBy, c.Agent, c.Conversation = "gateway", "coder", "conv-1"
	c.Tool, c.Provider = "run_command", "builtin"
	c.Exec = &writtoken.Exec{MAC: writtoken.CommitCommand(salt(), input()), Cwd: "src", Isolation: "isolated", Network: "open",
		Timeout: 90 * time.Second, MaxOutput: 1 << 20}
	c.Scopes = writtoken.Scopes{
		Paths: []writtoken.PathScope{
			{Folder: writtoken.Folder{Path: "/work/p", Dev: 2049, Ino: 18446744073709551615}, Access: "write"},
			{Folder: writtoken.Folder{Path: "/work/ro", Dev: 2049, Ino: 7}, Access: "read"},
		},
		Network:       writtoken.Network{Mode: "open"},
		HostExecution: true,
		Secrets:       []writtoken.Secret{{Name: "token", Destination: "https://example.org"}},
		MCPRoot:       &writtoken.Folder{Path: "/work/p", Dev: 2049, Ino: 18446744073709551615},
	}
	c.Decision = writtoken.Decision{ID: "d_2", Cause: "card", Card: "k_1", Grant: "g_1"}
	c.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return c
}

func verifier() *writtoken.Verifier {
	return &writtoken.Verifier{
		Issuers:  map[string]writtoken.KeySource{issuer: writtoken.StaticKeys{kid: testKey().Public().(ed25519.PublicKey)}},
		Audience: audHost, Namespaces: []string{"default"},
		Now: func() time.Time { return start().Add(10 * time.Second) },
	}
}

func mint(t testing.TB, c writtoken.Claims) string {
	t.Helper()
	token, err := writtoken.Mint(testKey(), kid, c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
