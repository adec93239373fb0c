package keyring_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/permission-svc/internal/keyring"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// memory keeps keys as a store does.
type memory struct{ keys []store.Key }

func (m *memory) Keys(context.Context) ([]store.Key, error) { return m.keys, nil }

func (m *memory) PutKeys(_ context.Context, keys ...store.Key) error {
	for _, k := range keys {
		known := false
		for i := range m.keys {
			if m.keys[i].KID == k.KID {
				m.keys[i], known = k, true
			}
		}
		if !known {
			m.keys = append(m.keys, k)
		}
	}
	return nil
}

// A key that is lost, exposed or not the published one is an error that names its file; it is never replaced silently,
// since nobody would trust the new one.
func TestADamagedKeyIsNotReplaced(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"lost":    os.Remove,
		"exposed": func(path string) error { return os.Chmod(path, 0o644) },
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"other": func(path string) error {
			return os.WriteFile(path, []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := keyring.Options{Store: &memory{}, Dir: filepath.Join(t.TempDir(), "keys"), Now: time.Now}
			r, err := keyring.Open(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			_, kid := r.Signer()
			if err := damage(filepath.Join(opts.Dir, "writ-"+kid+".key")); err != nil {
				t.Fatal(err)
			}
			if _, err := keyring.Open(t.Context(), opts); err == nil || !strings.Contains(err.Error(), kid) {
				t.Fatal(err)
			}
		})
	}
}

// A retired key can't sign any more: its private half is gone, from memory, store and folder.
func TestARetiredKeyIsGone(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "keys")} {
		m := &memory{}
		r, err := keyring.Open(t.Context(), keyring.Options{Store: m, Dir: dir, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		before, retired := r.Signer()
		if err := r.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, kid := r.Signer()
		if kid == retired || before.Equal(after) {
			t.Fatal("the same key signs")
		}
		if m.keys[0].KID != retired || m.keys[0].Seed != nil || m.keys[0].RetireTime.IsZero() {
			t.Errorf("%+v", m.keys[0])
		}
		if _, err := os.Stat(filepath.Join(dir, "writ-"+retired+".key")); dir != "" && !os.IsNotExist(err) {
			t.Error("the file is still there", err)
		}
		for _, k := range r.Keys() {
			if k.Seed != nil {
				t.Error("a private half is handed out")
			}
		}
	}
}
