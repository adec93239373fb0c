package provider_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/writ-dev/writ/mcp-host-svc/internal/provider"
)

func program(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever changes what is started changes the digest that grants are bound to,
// and nothing else does.
func TestDigestCoversWhatIsStarted(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "node", "one")
	script := program(t, dir, "server.js", "listen()")
	r := provider.NewResolver("/nonexistent:" + dir)
	base := provider.Spec{Transport: provider.Stdio, Command: "node", Args: []string{script, "a", "b"}, Env: map[string]string{"K": "v"}}
	digest := func(change func(*provider.Spec)) string {
		s := base
		s.Args, s.Env = slices.Clone(base.Args), map[string]string{"K": "v"}
		change(&s)
		got, err := r.Resolve(s)
		if err != nil {
			t.Fatal(err)
		}
		return got.Digest
	}
	same := digest(func(*provider.Spec) {})
	seen := map[string]string{same: "unchanged"}
	for name, change := range map[string]func(*provider.Spec){
		"argument":   func(s *provider.Spec) { s.Args[2] = "c" },
		"boundaries": func(s *provider.Spec) { s.Args = []string{script, "ab"} },
		"env name":   func(s *provider.Spec) { s.Env = map[string]string{"L": "v"} },
		"env value":  func(s *provider.Spec) { s.Env["K"] = "w" },
		"folder":     func(s *provider.Spec) { s.WorkingFolder = "/tmp" },
		"command":    func(s *provider.Spec) { s.Command = filepath.Join(dir, "node") },
	} {
		d := digest(change)
		if was, ok := seen[d]; ok {
			t.Errorf("%s: same digest as %s", name, was)
		}
		seen[d] = name
	}
	if digest(func(*provider.Spec) {}) != same {
		t.Error("the digest is not stable")
	}
	program(t, dir, "server.js", "listen(); steal()")
	edited := digest(func(*provider.Spec) {})
	if edited == same {
		t.Error("an edited script is the same provider")
	}
	program(t, dir, "node", "two")
	if digest(func(*provider.Spec) {}) == edited {
		t.Error("another program of the same name is the same provider")
	}
}

func TestMissingProgramSaysWhereItWasSearched(t *testing.T) {
	r := provider.NewResolver("/usr/bin:/opt/none")
	for command, searched := range map[string]string{
		"no-such-thing": "/usr/bin:/opt/none", "/no/such": "/no/such", "./here": "here", "": "/usr/bin:/opt/none", "/etc/passwd": "/etc/passwd",
	} {
		_, err := r.Resolve(provider.Spec{Transport: provider.Stdio, Command: command})
		var nf *provider.NotFoundError
		if !errors.As(err, &nf) || nf.Searched != searched {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestPackagesOfLaunchers(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"npx", "uvx", "npm", "node"} {
		program(t, dir, n, n)
	}
	r := provider.NewResolver(dir)
	for line, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /tmp": "@modelcontextprotocol/server-filesystem@2026.8.31 pinned",
		"npx -y @scope/server":             "@scope/server",
		"npx server@latest":                "server@latest",
		"npx --package=a@1.0.0 -c b":       "a@1.0.0 pinned",
		"npx -p a@^1.0.0 b":                "a@^1.0.0",
		"uvx --from mcp-git==2.1.0 mcp":    "mcp-git==2.1.0 pinned",
		"uvx --python 3.12 mcp-server-git": "mcp-server-git",
		"npm exec -- pkg@1.2.3":            "pkg@1.2.3 pinned",
		"npm start":                        "",
		"node server.js":                   "",
	} {
		words := strings.Fields(line)
		got, err := r.Resolve(provider.Spec{Transport: provider.Stdio, Command: words[0], Args: words[1:]})
		if err != nil {
			t.Fatal(err)
		}
		text := got.Package
		if got.Pinned {
			text += " pinned"
		}
		if text != want {
			t.Errorf("%s: got %q, want %q", line, text, want)
		}
	}
}

// Nothing of the host's own environment reaches a server.
func TestEnvironmentIsOnlyWhatIsNamed(t *testing.T) {
	t.Setenv("SECRET_OF_THE_HOST", "x")
	got := provider.Environment(provider.Base{Path: "/bin", Home: "/home/u"}, map[string]string{"K": "v", "HOME": "/own"}, map[string]string{"TRACEPARENT": "00-1", "EMPTY": ""})
	want := []string{"HOME=/own", "K=v", "PATH=/bin", "TRACEPARENT=00-1"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q", got)
	}
}

func TestWordsForACard(t *testing.T) {
	got, _ := provider.NewResolver("").Resolve(provider.Spec{Transport: provider.HTTP, URL: "https://e.x/mcp"})
	if got.Starts != "a connection to https://e.x/mcp" || len(got.Digest) != 64 {
		t.Fatalf("%+v", got)
	}
	got, _ = provider.NewResolver("").Resolve(provider.Spec{Transport: provider.Stdio, Command: "x", Args: []string{"a b"}, Env: map[string]string{"T": "secret"}})
	if got.Starts != `x "a b" with the variables T` {
		t.Fatalf("%q", got.Starts)
	}
}
