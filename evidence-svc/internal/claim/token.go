// Package claim knows the open claims and the tokens that end them.
package claim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
)

// Tokens makes and checks claim tokens. A token is computed from the claim that it belongs to and the store's secret,
// so it needs no place to be kept, survives a restart, and is good for one executor, one call and one writ only.
type Tokens struct{ secret []byte }

// NewTokens needs a secret that stays the same for the life of the store.
func NewTokens(secret []byte) Tokens { return Tokens{secret: secret} }

// Make returns the token of a claim.
func (t Tokens) Make(namespace, call, executor, writID string) string {
	mac := hmac.New(sha256.New, t.secret)
	for _, part := range []string{"writ-claim-v1", namespace, call, executor, writID} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		mac.Write(size[:])
		io.WriteString(mac, part)
	}
	return "ct_" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Valid reports whether token is the one that Make gives.
func (t Tokens) Valid(token, namespace, call, executor, writID string) bool {
	return hmac.Equal([]byte(token), []byte(t.Make(namespace, call, executor, writID)))
}
