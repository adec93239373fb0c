// Package home is the layout of $WRIT_HOME, the folder that holds an installation's configuration, keys, tokens and
// stores. Everything in it is private to its owner.
package home

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/writ-dev/writ/internal/ids"
)

// Env names the variable that moves the home.
const Env = "WRIT_HOME"

// Layout names the files of a home. It touches none of them.
type Layout struct{ Root string }

// Home is a home that exists and that only its owner can enter.
type Home struct{ Layout }

// Default is $WRIT_HOME, or ~/.writ.
func Default() (string, error) {
	if p := os.Getenv(Env); p != "" {
		return filepath.Abs(p)
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no %s and no home folder: %w; set %s to a folder of your own", Env, err, Env)
	}
	return filepath.Join(user, ".writ"), nil
}

// Open makes the home at path, "" meaning Default, with mode 0700, or takes that mode from one that is there. A home
// that belongs to another user is refused.
func Open(path string) (*Home, error) {
	if path == "" {
		var err error
		if path, err = Default(); err != nil {
			return nil, err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	h := &Home{Layout{Root: path}}
	for _, dir := range []string{path, h.tokens(), h.keys(), h.data(), h.BlobDir(), h.servers(), h.LogDir()} {
		if err := own(dir); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, this process is uid %d: point %s at a folder of your own", dir, sys.Uid, os.Geteuid(), Env)
	}
	if st.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

func (l Layout) in(parts ...string) string {
	return filepath.Join(append([]string{l.Root}, parts...)...)
}

func (l Layout) tokens() string  { return l.in("tokens") }
func (l Layout) keys() string    { return l.in("keys") }
func (l Layout) data() string    { return l.in("data") }
func (l Layout) servers() string { return l.in("servers") }

// ConfigFile is writ.yaml.
func (l Layout) ConfigFile() string { return l.in("writ.yaml") }

// Socket is the unix socket of the server on this home.
func (l Layout) Socket() string { return l.in("writ.sock") }

// LockFile holds the pid of the server on this home.
func (l Layout) LockFile() string { return l.in("writ.lock") }

// TokenFile holds the bearer token of an embedded credential, "caller" or "approver".
func (l Layout) TokenFile(name string) string { return filepath.Join(l.tokens(), name) }

// CredentialsFile is the table of hashes and rights behind the token files.
func (l Layout) CredentialsFile() string { return filepath.Join(l.tokens(), "credentials.json") }

// KeyFile holds the signing key of a service.
func (l Layout) KeyFile(service string) string { return filepath.Join(l.keys(), service+".key") }

// DataFile is the SQLite store of a service.
func (l Layout) DataFile(service string) string { return filepath.Join(l.data(), service+".db") }

// BlobDir holds evidence-svc's blobs.
func (l Layout) BlobDir() string { return l.in("evidence", "blobs") }

// LogDir holds log files.
func (l Layout) LogDir() string { return l.in("log") }

// ServerDir makes the folder that an MCP server is started in, a folder of its own for each name. A name that is not
// fit for a file name is replaced by its hash.
func (h *Home) ServerDir(name string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(name) {
		sum := sha256.Sum256([]byte(name))
		name = ".x-" + hex.EncodeToString(sum[:12])
	}
	dir := filepath.Join(h.servers(), name)
	return dir, own(dir)
}

// DeploymentID is the id that stands in issuer and audience of every writ of this home. It is made once.
func (h *Home) DeploymentID() (string, error) {
	path := h.in("deployment-id")
	b, err := ReadPrivate(path)
	if errors.Is(err, os.ErrNotExist) {
		id := ids.New("d_", rand.Reader)
		if err = CreatePrivate(path, []byte(id+"\n")); err == nil {
			return id, nil
		}
		if errors.Is(err, os.ErrExist) { // another process was faster
			b, err = ReadPrivate(path)
		}
	}
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(b))
	if !ids.Valid("d_", id) {
		return "", fmt.Errorf("%s holds no deployment id: restore it from a backup; without it no writ of this home verifies", path)
	}
	return id, nil
}
