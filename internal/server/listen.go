package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is what fits into a socket address on Linux, less the terminating zero. Bytes.
const maxSocketPath = 107

// ListenError tells why a server does not listen somewhere.
type ListenError struct {
	Address string
	Reason  string
	Next    string
	Err     error
}

func (e *ListenError) Error() string {
	s := fmt.Sprintf("not listening on %s: %s", e.Address, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + " " + e.Next
}

// Unwrap returns what the system said.
func (e *ListenError) Unwrap() error { return e.Err }

// ListenUnix listens on a unix socket that only this user can reach (0600, from its first moment). A socket file that
// nobody listens on any more is replaced; one that somebody listens on, or a file that is no socket, is an error.
func ListenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, &ListenError{Address: path, Reason: fmt.Sprintf("the path has %d bytes, the system takes %d.", len(path), maxSocketPath), Next: "Use a shorter $WRIT_HOME."}
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	// The socket is made under another name, made private, and then moved: nobody finds it while its mode is open.
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".s%d", os.Getpid()))
	if len(tmp) > maxSocketPath {
		tmp = path
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, &ListenError{Address: path, Reason: "the system refuses", Err: err}
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		l.Close()
		os.Remove(tmp)
		return nil, &ListenError{Address: path, Reason: "its file can't be made", Err: err}
	}
	st, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, &ListenError{Address: path, Reason: "its file is gone", Err: err}
	}
	return &unixListener{UnixListener: l, path: path, file: st}, nil
}

func clearStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &ListenError{Address: path, Reason: "the path can't be looked at", Err: err}
	}
	if st.Mode().Type() != os.ModeSocket {
		return &ListenError{Address: path, Reason: "a file that is no socket is in its place.", Next: "Move it away."}
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return &ListenError{Address: path, Reason: "another server listens on it.", Next: "Use that one, end it, or set $WRIT_HOME to another folder."}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return &ListenError{Address: path, Reason: "it may be in use", Err: err}
	}
	return os.Remove(path)
}

// unixListener removes its file when it closes, unless another server has put its own there.
type unixListener struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

func (l *unixListener) Close() error {
	if st, err := os.Lstat(l.path); err == nil && os.SameFile(st, l.file) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// Exposure is what the operator said about a TCP listener.
type Exposure struct {
	// TLS of the listener.
	TLS *tls.Config
	// External tells that something in front ends TLS, a mesh or a proxy: `tls: external`.
	External bool
	// Authenticated tells that every call needs a credential.
	Authenticated bool
}

// ListenTCP listens on host:port. Loopback is free; every other address needs TLS, or External, and authentication
// (R133, R134).
func ListenTCP(address string, e Exposure) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, &ListenError{Address: address, Reason: "it is no host:port", Err: err}
	}
	if !resolved.IP.IsLoopback() {
		if err := e.permit(address); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, &ListenError{Address: address, Reason: "the system refuses", Err: err, Next: "Choose another port, or end what uses it."}
	}
	if e.TLS == nil {
		return l, nil
	}
	conf := e.TLS.Clone()
	conf.NextProtos = []string{"h2"}
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	return tls.NewListener(l, conf), nil
}

// exposed is the sentence of R134, for the whole of Writ.
const exposed = "A Writ server can mutate local code and run agents' tools, so remote exposure must be explicit."

func (e Exposure) permit(address string) error {
	switch {
	case !e.Authenticated:
		return &ListenError{Address: address, Reason: exposed, Next: "It is not a loopback address and this server authenticates nobody: configure credentials, or listen on 127.0.0.1."}
	case e.TLS == nil && !e.External:
		return &ListenError{Address: address, Reason: exposed, Next: "It is not a loopback address and has no TLS: configure a certificate, or `tls: external` where a proxy in front ends TLS, or listen on 127.0.0.1."}
	}
	return nil
}

// Path is where the socket lies.
func (l *unixListener) Path() string { return l.path }
