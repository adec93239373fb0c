package writtoken

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

// ErrNoKey is what a KeySource answers for a kid that the issuer does not have.
var ErrNoKey = errors.New("the issuer has no such key")

// KeySource finds the public keys of one issuer.
type KeySource interface {
	// Key returns the key, ErrNoKey if there is none with this id, or another
	// error if the source can't tell. Every error refuses the writ.
	Key(ctx context.Context, kid string) (ed25519.PublicKey, error)
}

// StaticKeys is a fixed set of keys by their ids.
type StaticKeys map[string]ed25519.PublicKey

// Key implements KeySource.
func (s StaticKeys) Key(_ context.Context, kid string) (ed25519.PublicKey, error) {
	key, ok := s[kid]
	if !ok {
		return nil, ErrNoKey
	}
	return key, nil
}

// Defaults of RefreshingKeys.
const (
	DefaultRefresh  = 5 * time.Minute // keys are read again after this time
	DefaultMaxStale = time.Hour       // how long old keys are good while none can be read
	DefaultMinWait  = 2 * time.Second // between two reads that an unknown kid causes
)

// RefreshingKeys reads an issuer's keys when they are needed and keeps them
// for a while. An unknown kid makes it read again, so that a rotated key works
// at once; MinWait keeps a flood of invented kids from flooding the issuer.
type RefreshingKeys struct {
	Fetch    func(ctx context.Context) (map[string]ed25519.PublicKey, error) // for example over AuthorizationService.ListKeys
	Refresh  time.Duration                                                   // 0: DefaultRefresh
	MaxStale time.Duration                                                   // 0: DefaultMaxStale
	MinWait  time.Duration                                                   // 0: DefaultMinWait
	Now      func() time.Time                                                // nil: time.Now

	mu    sync.Mutex
	keys  map[string]ed25519.PublicKey
	good  time.Time // last successful read
	tried time.Time // last read
	err   error     // of the last read
}

// Key implements KeySource. One caller reads, the others wait for it.
func (r *RefreshingKeys) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	t := now()
	_, known := r.keys[kid]
	fresh := !r.good.IsZero() && t.Sub(r.good) < orDefault(r.Refresh, DefaultRefresh)
	mayTry := r.tried.IsZero() || t.Sub(r.tried) >= orDefault(r.MinWait, DefaultMinWait)
	if (!known || !fresh) && mayTry {
		r.read(ctx, t)
	}
	if r.good.IsZero() || t.Sub(r.good) >= orDefault(r.MaxStale, DefaultMaxStale) {
		if r.err != nil {
			return nil, r.err
		}
		return nil, ErrNoKey
	}
	return StaticKeys(r.keys).Key(ctx, kid)
}

func (r *RefreshingKeys) read(ctx context.Context, t time.Time) {
	keys, err := r.Fetch(ctx)
	if ctx.Err() != nil && err != nil {
		return // the caller gave up, which says nothing about the issuer
	}
	r.tried, r.err = t, err
	if err == nil {
		r.keys, r.good = maps.Clone(keys), t
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// KeyID is a key's JWK thumbprint (RFC 7638, RFC 8037), an id that needs no registry.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + encode(key) + `"}`))
	return encode(sum[:])
}

// ParseKeySet reads a JWK Set (RFC 7517) of Ed25519 keys, the form of a key
// file and of a key URL in trusted_issuers. Members that it does not need are
// passed over; a key of another type is an error, since it could verify nothing.
func ParseKeySet(b []byte) (StaticKeys, error) {
	if err := rawjson.CheckObject(b, rawjson.Limits{}); err != nil {
		return nil, errors.New("key set: " + err.Error())
	}
	list, ok, err := rawjson.Get(b, "keys")
	if err != nil || !ok {
		return nil, errors.New(`key set: a list "keys" is needed (RFC 7517)`)
	}
	keys := StaticKeys{}
	for raw, err := range rawjson.Elements(list) {
		if err != nil {
			return nil, errors.New(`key set: "keys" is no list`)
		}
		var jwk [4]string
		for i, name := range []string{"kty", "crv", "kid", "x"} {
			value, _, err := rawjson.Get(raw, name)
			if err == nil {
				jwk[i], err = rawjson.String(value)
			}
			if err != nil {
				return nil, errors.New("key set: key " + strconv.Itoa(len(keys)) + ": a string " + name + " is needed")
			}
		}
		x, ok := decode(jwk[3])
		if jwk[0] != "OKP" || jwk[1] != "Ed25519" || !ok || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("key set: key " + strconv.QuoteToASCII(jwk[2]) + " is no Ed25519 public key")
		}
		if _, twice := keys[jwk[2]]; twice || jwk[2] == "" {
			return nil, errors.New("key set: kid " + strconv.QuoteToASCII(jwk[2]) + " is empty or stands twice")
		}
		keys[jwk[2]] = x
	}
	return keys, nil
}

// AppendKeySet writes the keys as ParseKeySet reads them, in the order of their ids.
func AppendKeySet(dst []byte, keys map[string]ed25519.PublicKey) []byte {
	dst = append(dst, `{"keys":[`...)
	for i, kid := range slices.Sorted(maps.Keys(keys)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":`...)
		dst = rawjson.AppendString(dst, kid)
		dst = append(append(append(dst, `,"x":"`...), encode(keys[kid])...), `"}`...)
	}
	return append(dst, `]}`...)
}
