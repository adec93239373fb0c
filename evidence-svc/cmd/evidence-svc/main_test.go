package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/testkit"
)

func writeKeys(t *testing.T, dir, name string) {
	t.Helper()
	key, id := evidencetest.Key(name)
	set := writtoken.AppendKeySet(nil, map[string]ed25519.PublicKey{id: key.Public().(ed25519.PublicKey)})
	if err := os.WriteFile(filepath.Join(dir, name+".json"), set, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestItRunsAlone(t *testing.T) { // R111
	dir, err := os.MkdirTemp("", "ev") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	writeKeys(t, dir, "exec")
	writeKeys(t, dir, "writs")
	config := filepath.Join(dir, "evidence.yaml")
	yaml := "signers:\n  exec:\n    audience: " + evidencetest.Audience("exec") + "\n    key_file: exec.json\n" +
		"trusted_issuers:\n  " + evidencetest.Issuer + ":\n    key_file: writs.json\n"
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-home", home, "-config", config}, &bytes.Buffer{}) }()
	socket := filepath.Join(home, "evidence.sock")
	testkit.WaitFor(t, 10*time.Second, func() bool { _, err := os.Stat(socket); return err == nil })
	token, err := auth.ReadToken(filepath.Join(home, "tokens", "caller"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := server.Dial("unix:"+socket, server.DialOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "writ.evidence.v1.ClaimService"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health %v %v", health, err)
	}
	keys, err := evidencev1.NewReceiptServiceClient(conn).ListReceiptKeys(ctx, &evidencev1.ListReceiptKeysRequest{})
	if err != nil || len(keys.GetKeys()) != 2 {
		t.Errorf("keys %v %v", keys, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAMistakeInTheFileIsNamed(t *testing.T) {
	for content, want := range map[string]string{
		"signer: {}":                              "field signer not found",
		"signers: {exec: {key_file: nothing}}":    "signers.exec: key_file",
		"trusted_issuers: {x: {key_file: nope}}":  "trusted_issuers.x: key_file",
		"signers: {exec: {key_file: wrong.yaml}}": "signers.exec: key_file",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "wrong.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(t.Context(), []string{"-home", filepath.Join(dir, "home"), "-config", path}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
