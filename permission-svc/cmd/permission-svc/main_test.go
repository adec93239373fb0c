package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/testkit"
)

// R55, R111: the service runs alone: health, keys, settings by the person's token, and a clear word where a resolver is missing.
func TestItRunsAlone(t *testing.T) {
	dir, err := os.MkdirTemp("", "pm") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-home", dir}, &bytes.Buffer{}) }()
	socket := filepath.Join(dir, "permission.sock")
	testkit.WaitFor(t, 10*time.Second, func() bool { _, err := os.Stat(socket); return err == nil })
	conn := func(name string) server.DialOptions {
		token, err := auth.ReadToken(filepath.Join(dir, "tokens", name))
		if err != nil {
			t.Fatal(err)
		}
		return server.DialOptions{Token: token}
	}
	agent, err := server.Dial("unix:"+socket, conn("caller"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	person, err := server.Dial("unix:"+socket, conn("approver"))
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	for _, service := range []string{"", "writ.permission.v1.AuthorizationService"} {
		if r, err := healthpb.NewHealthClient(agent).Check(ctx, &healthpb.HealthCheckRequest{Service: service}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Fatal(service, r, err)
		}
	}
	keys, err := permissionv1.NewAuthorizationServiceClient(agent).ListKeys(ctx, &permissionv1.ListKeysRequest{})
	if err != nil || len(keys.GetKeys()) != 2 || !strings.HasPrefix(keys.GetIssuer(), "urn:writ:d_") {
		t.Fatal(keys, err)
	}
	_, err = permissionv1.NewAuthorizationServiceClient(agent).Authorize(ctx, &permissionv1.AuthorizeRequest{Turn: "t", Call: "c", Tool: "x", Arguments: []byte("{}")})
	if errs.ReasonOf(err) != "PEER_UNAVAILABLE" || errs.Metadata(err)["next"] == "" {
		t.Fatal(err)
	}
	settings := &permissionv1.UpdateSettingsRequest{Settings: &permissionv1.Settings{ModeCap: commonv1.Mode_MODE_AUTO}}
	if _, err := permissionv1.NewSettingsServiceClient(agent).UpdateSettings(ctx, settings); errs.ReasonOf(err) != "ACCESS_DENIED" {
		t.Fatal(err)
	}
	if _, err := permissionv1.NewSettingsServiceClient(person).UpdateSettings(ctx, settings); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// What is wrong on the command line is named.
func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-nope"}, {"-listen", "0.0.0.0:0", "-home", t.TempDir()}, {"-token", "/nowhere", "-home", t.TempDir()}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Error(args)
		}
	}
	if err := run(t.Context(), []string{"-help"}, &bytes.Buffer{}); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
