package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/testkit"
)

// The binary runs before peers that are not there yet: it serves, and a call says which of them is missing.
func TestItRunsBeforeItsPeers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	token := filepath.Join(t.TempDir(), "token")
	if err := home.CreatePrivate(token, []byte(auth.NewToken()+"\n")); err != nil {
		t.Fatal(err)
	}
	nowhere := "unix:" + filepath.Join(t.TempDir(), "nobody.sock")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{
			"-home", dir, "-token", token, "-permission", nowhere, "-registry", nowhere, "-evidence", nowhere, "-exec", nowhere, "-listen", "127.0.0.1:0",
		}, io.Discard)
	}()
	socket := filepath.Join(dir, "gateway.sock")
	testkit.WaitFor(t, 20*time.Second, func() bool { _, err := os.Stat(socket); return err == nil })
	caller, err := auth.ReadToken(filepath.Join(dir, "tokens", "caller"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := server.Dial("unix:"+socket, server.DialOptions{Token: caller})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := commonv1.NewServerInfoServiceClient(conn).GetServerInfo(t.Context(), &commonv1.GetServerInfoRequest{})
	if err != nil || info.GetDeployment() == "" || len(info.GetServices()) != 2 {
		t.Errorf("%v %v", info, err)
	}
	in, err := gatewayv1.NewCallServiceClient(conn).CallTool(t.Context(), &gatewayv1.CallToolRequest{Turn: "t_1", Tool: "run_command"})
	if err == nil {
		_, err = in.Recv()
	}
	if errs.ReasonOf(err) != "PEER_UNAVAILABLE" || errs.Metadata(err)["name"] != "permission" {
		t.Errorf("%v %v", err, errs.Metadata(err))
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWhatCantBeMeantIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-nope"}, {"-token", "x", "-permission", "y", "-registry", "z"},
		{"-token", "/absent", "-permission", "unix:/y", "-registry", "unix:/z", "-evidence", "unix:/e", "-home", t.TempDir()},
		{"-token", "/absent", "-permission", "unix:/y", "-registry", "unix:/z", "-evidence", "unix:/e", "more"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q starts", args)
		}
	}
}
