package executor

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

// Trust adds the issuers that an executor trusts to those that are given: key files (JWK Set) by issuer, and the
// permission service of the deployment, asked by client, where there is one and nothing else stands for it. It is an
// error to trust nobody: nothing could ever run.
func Trust(issuers map[string]writtoken.KeySource, deployment string, files map[string]string, client permissionv1.AuthorizationServiceClient, now func() time.Time) error {
	for issuer, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("trusted_issuers[%s]: %w", issuer, err)
		}
		keys, err := writtoken.ParseKeySet(text)
		if err != nil {
			return fmt.Errorf("trusted_issuers[%s]: %s: %w", issuer, file, err)
		}
		issuers[issuer] = keys
	}
	own := "urn:writ:" + deployment + ":permission"
	if _, set := issuers[own]; !set && client != nil {
		issuers[own] = &writtoken.RefreshingKeys{Now: now, Fetch: func(ctx context.Context) (map[string]ed25519.PublicKey, error) { return FetchKeys(ctx, client, own) }}
	}
	if len(issuers) == 0 {
		return errors.New("no trusted issuer: set trusted_issuers, or connect a permission service")
	}
	return nil
}

// FetchKeys reads the public keys that a permission service publishes. One that calls itself another issuer than is
// trusted gives none. A key that is no Ed25519 key is left out.
func FetchKeys(ctx context.Context, client permissionv1.AuthorizationServiceClient, issuer string) (map[string]ed25519.PublicKey, error) {
	answer, err := client.ListKeys(ctx, &permissionv1.ListKeysRequest{})
	if err != nil {
		return nil, err
	}
	if answer.GetIssuer() != issuer {
		return nil, fmt.Errorf("the permission service is %q, not %q", answer.GetIssuer(), issuer)
	}
	keys := map[string]ed25519.PublicKey{}
	for _, k := range answer.GetKeys() {
		if len(k.GetPublicKey()) == ed25519.PublicKeySize {
			keys[k.GetKid()] = k.GetPublicKey()
		}
	}
	return keys, nil
}
