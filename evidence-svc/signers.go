package evidence

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// TrustSigner accepts statements of a service from now on, in place of what was accepted of it. Its keys are published
// for ever, since receipts need them.
func (s *Server) TrustSigner(ctx context.Context, name string, signer Signer) error {
	if name == "" || name == service {
		return fmt.Errorf("%q is no name for a signer", name)
	}
	var keep []store.Key
	for id, key := range signer.Keys {
		if len(key) != ed25519.PublicKeySize || id == "" {
			return fmt.Errorf("signer %s: key %q is no Ed25519 public key with an id", name, id)
		}
		keep = append(keep, store.Key{ID: id, Service: name, Public: key})
	}
	if err := s.store.KeepKeys(ctx, keep, s.now()); err != nil {
		return err
	}
	s.signersMu.Lock()
	defer s.signersMu.Unlock()
	next := maps.Clone(*s.signers.Load())
	next[name] = Signer{Keys: maps.Clone(signer.Keys), Audience: signer.Audience}
	s.signers.Store(&next)
	return nil
}

// signer finds what is accepted of the authenticated peer.
func (s *Server) signer(peer string) (Signer, error) {
	signer, ok := (*s.signers.Load())[peer]
	if !ok {
		return Signer{}, errs.New(codes.PermissionDenied, commonv1.ErrorReason_ERROR_REASON_ACCESS_DENIED, peer,
			"the service "+peer+" is not one whose statements are accepted here",
			"Let the operator add it, with its keys, to the signers of evidence-svc.")
	}
	return signer, nil
}

// verifier checks writs for an executor.
func (s *Server) verifier(audience string, now func() time.Time) *writtoken.Verifier {
	return &writtoken.Verifier{Issuers: s.issuers, Audience: audience, Now: now, Skew: s.cfg.Skew}
}

// ListReceiptKeys implements ReceiptService.
func (s *Server) ListReceiptKeys(ctx context.Context, _ *evidencev1.ListReceiptKeysRequest) (*evidencev1.ListReceiptKeysResponse, error) {
	keys, err := s.store.Keys(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	answer := &evidencev1.ListReceiptKeysResponse{}
	for _, k := range keys {
		answer.Keys = append(answer.Keys, &evidencev1.ReceiptKey{KeyId: k.ID, Service: k.Service, PublicKey: k.Public})
	}
	return answer, nil
}
