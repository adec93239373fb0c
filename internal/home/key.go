package home

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

const pemType = "PRIVATE KEY"

// LoadOrCreateKey returns the service's signing key and its key id, and makes the key (PKCS #8 in PEM, 0600) if there
// is none. A key file that others can read is refused.
func (h *Home) LoadOrCreateKey(service string) (ed25519.PrivateKey, string, error) {
	path := h.KeyFile(service)
	b, err := ReadPrivate(path)
	if errors.Is(err, os.ErrNotExist) {
		if b, err = newKey(); err != nil {
			return nil, "", err
		}
		if err = CreatePrivate(path, b); errors.Is(err, os.ErrExist) { // another process was faster
			b, err = ReadPrivate(path)
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("signing key of %s: %w", service, err)
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, "", fmt.Errorf("signing key of %s: %s: %w", service, path, err)
	}
	return key, KeyID(key.Public().(ed25519.PublicKey)), nil
}

// KeyID is the key's RFC 7638 thumbprint: base64url of the SHA-256 of its JWK. Every language can compute it.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(pub) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func newKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
}

func parseKey(b []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != pemType {
		return nil, errors.New("is not a PEM private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("is not a PKCS #8 private key")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("is a %T, an Ed25519 key is needed", parsed)
	}
	return key, nil
}
