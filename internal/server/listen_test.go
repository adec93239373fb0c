package server_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/writ-dev/writ/internal/server"
)

func TestASocketIsPrivateAndGoesWithItsListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := server.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
	if _, err := server.ListenUnix(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a socket that somebody listens on: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first listener is gone: %v", err)
	} else {
		c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A crashed server leaves its socket; the next one takes its place. A file of somebody's is not removed.
func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	fresh, err := server.ListenUnix(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	fresh.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ListenUnix(path); err == nil {
		t.Error("a file was taken for a socket")
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("the file is gone")
	}
	if _, err := server.ListenUnix("/" + strings.Repeat("x", 200)); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("a path that is too long: %v", err)
	}
}

// R133, R134: every combination of address, TLS and authentication; only loopback is free.
func TestRemoteExposureMustBeExplicit(t *testing.T) {
	conf := &tls.Config{}
	for _, tc := range []struct {
		address  string
		exposure server.Exposure
		open     bool
	}{
		{"127.0.0.1:0", server.Exposure{}, true},
		{"[::1]:0", server.Exposure{}, true},
		{"localhost:0", server.Exposure{}, true},
		{"0.0.0.0:0", server.Exposure{}, false},
		{":0", server.Exposure{}, false},
		{"[::]:0", server.Exposure{Authenticated: true}, false},
		{"0.0.0.0:0", server.Exposure{Authenticated: true}, false},
		{"0.0.0.0:0", server.Exposure{TLS: conf}, false},
		{"0.0.0.0:0", server.Exposure{External: true}, false},
		{"0.0.0.0:0", server.Exposure{TLS: conf, Authenticated: true}, true},
		{"0.0.0.0:0", server.Exposure{External: true, Authenticated: true}, true},
	} {
		l, err := server.ListenTCP(tc.address, tc.exposure)
		if l != nil {
			l.Close()
		}
		var why *server.ListenError
		switch {
		case tc.open && err != nil && !strings.Contains(err.Error(), "the system refuses"):
			t.Errorf("%+v: %v", tc, err)
		case !tc.open && (err == nil || !errors.As(err, &why)):
			t.Errorf("%+v: %v", tc, err)
		case !tc.open && (!strings.Contains(err.Error(), "remote exposure must be explicit") || why.Next == ""):
			t.Errorf("%+v does not say why: %v", tc, err)
		}
	}
	if _, err := server.ListenTCP("no port", server.Exposure{}); err == nil {
		t.Error("an address without a port")
	}
}
