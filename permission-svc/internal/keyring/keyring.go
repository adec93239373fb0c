// Package keyring keeps the keys that sign writs: the current one, the next one, which is published before its first use,
// and the public halves of the old ones, for as long as receipts need them.
package keyring

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// Store is where keys survive.
type Store interface {
	Keys(ctx context.Context) ([]store.Key, error)
	PutKeys(ctx context.Context, keys ...store.Key) error
}

// Options are a ring's dependencies.
type Options struct {
	Store    Store
	Dir      string        // private keys lie here, 0600; "": in the store
	Lifetime time.Duration // of the current key
	Now      func() time.Time
}

// Ring is safe for concurrent use.
type Ring struct {
	opts    Options
	mu      sync.RWMutex
	keys    []store.Key // oldest first; the last two are the current and the next one
	private ed25519.PrivateKey
}

// Open reads the keys, and makes what is missing.
func Open(ctx context.Context, opts Options) (*Ring, error) {
	r := &Ring{opts: opts}
	keys, err := opts.Store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		current, err := r.make()
		if err != nil {
			return nil, err
		}
		current.BeginTime = current.NotBefore
		next, err := r.make()
		if err != nil {
			return nil, err
		}
		keys = []store.Key{current, next}
		if err := opts.Store.PutKeys(ctx, keys...); err != nil {
			return nil, err
		}
	}
	if len(keys) < 2 {
		return nil, errors.New("signing keys: the store has a current key and no next one")
	}
	r.keys = keys
	r.private, err = r.load(keys[len(keys)-2])
	return r, err
}

func (r *Ring) file(kid string) string { return filepath.Join(r.opts.Dir, "writ-"+kid+".key") }

// make makes a key and keeps its private half.
func (r *Ring) make() (store.Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return store.Key{}, err
	}
	k := store.Key{KID: writtoken.KeyID(public), Public: public, NotBefore: r.opts.Now().UTC().Truncate(time.Second)}
	if r.opts.Dir == "" {
		k.Seed = private.Seed()
		return k, nil
	}
	if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
		return k, err
	}
	return k, home.CreatePrivate(r.file(k.KID), []byte(base64.StdEncoding.EncodeToString(private.Seed())+"\n"))
}

func (r *Ring) load(k store.Key) (ed25519.PrivateKey, error) {
	seed := k.Seed
	if seed == nil {
		text, err := home.ReadPrivate(r.file(k.KID))
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", k.KID, err)
		}
		if seed, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); err != nil {
			return nil, fmt.Errorf("signing key %s: %s holds no key", k.KID, r.file(k.KID))
		}
	}
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("signing key %s: %d bytes, %d are needed", k.KID, len(seed), ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(seed)
	if !private.Public().(ed25519.PublicKey).Equal(ed25519.PublicKey(k.Public)) {
		return nil, fmt.Errorf("signing key %s: the private half is another key's", k.KID)
	}
	return private, nil
}

// Signer is the current key with its id.
func (r *Ring) Signer() (ed25519.PrivateKey, string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.private, r.keys[len(r.keys)-2].KID
}

// Keys are all keys, without their private halves, oldest first.
func (r *Ring) Keys() []store.Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := slices.Clone(r.keys)
	for i := range out {
		out[i].Seed = nil
	}
	return out
}

// Rotate retires the current key, takes the next one, and publishes one more.
func (r *Ring) Rotate(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := slices.Clone(r.keys)
	old, current := &keys[len(keys)-2], &keys[len(keys)-1]
	private, err := r.load(*current)
	if err != nil {
		return err
	}
	next, err := r.make()
	if err != nil {
		return err
	}
	now := r.opts.Now().UTC()
	old.RetireTime, old.Seed, current.BeginTime = now, nil, now
	if err := r.opts.Store.PutKeys(ctx, *old, *current, next); err != nil {
		return err
	}
	retired := old.KID
	r.keys, r.private = append(keys, next), private
	if r.opts.Dir == "" {
		return nil
	}
	if err := os.Remove(r.file(retired)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the key was rotated, its old private half is still there: %w", err)
	}
	return nil
}

// Due reports whether the current key has served its time.
func (r *Ring) Due() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.opts.Lifetime > 0 && !r.opts.Now().Before(r.keys[len(r.keys)-2].BeginTime.Add(r.opts.Lifetime))
}
