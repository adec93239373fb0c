package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/server"
)

type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// The binary runs alone on a home of its own: the socket answers with the embedded tokens, $WRIT_HOME is no workspace,
// the configuration counts, and a signal's context ends it.
func TestItRunsAlone(t *testing.T) {
	home, work := filepath.Join(t.TempDir(), "w"), t.TempDir()
	yaml := filepath.Join(t.TempDir(), "registry.yaml")
	if err := os.WriteFile(yaml, []byte("agents:\n  bot:\n    deny: [run_command]\nworkspace_roots: [\""+work+"\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, []string{"-home", home, "-config", yaml, "-listen", "127.0.0.1:0"}, &log{}) }()
	token := ""
	for deadline := time.Now().Add(20 * time.Second); token == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not start")
		}
		if _, err := os.Stat(filepath.Join(home, "registry.sock")); err == nil {
			if token, err = auth.ReadToken(filepath.Join(home, "tokens", "caller")); err != nil {
				t.Fatal(err)
			}
		}
	}
	conn, err := server.Dial("unix:"+filepath.Join(home, "registry.sock"), server.DialOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := registryv1.NewTurnServiceClient(conn)
	res, err := client.OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Agent: "bot", Workspace: work})
	if err != nil || len(res.GetTurn().GetTools()) != 0 || res.GetTurn().GetWorkspace().GetPath() == "" {
		t.Errorf("%v %v", res, err)
	}
	if _, err := client.OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Workspace: home}); err == nil || !strings.Contains(err.Error(), "Writ's own home") {
		t.Error(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWhatCantBeMeantIsRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("agent: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-nope"}, {"extra"}, {"-home", t.TempDir(), "-config", bad}, {"-home", t.TempDir(), "-config", bad + ".absent"},
		{"-home", t.TempDir(), "-listen", "0.0.0.0:0"}, {"-home", t.TempDir(), "-token", bad + ".absent", "-mcp-host", "unix:/x"},
	} {
		if err := run(t.Context(), args, &log{}); err == nil {
			t.Errorf("%q starts", args)
		}
	}
}
