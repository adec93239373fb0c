package receipt

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// Sealer signs statements for one service and has them sealed. It is safe for concurrent use.
type Sealer struct {
	client  evidencev1.ReceiptServiceClient
	service string
	key     ed25519.PrivateKey
	keyID   string
}

// NewSealer makes a sealer. service is the name under which the client's connection is authenticated.
func NewSealer(client evidencev1.ReceiptServiceClient, service string, key ed25519.PrivateKey, keyID string) *Sealer {
	return &Sealer{client: client, service: service, key: key, keyID: keyID}
}

// Seal completes the facts, signs them and returns the durable receipt.
//
// It sets f.Executor; takes from opening.Outcome, if there is one, everything that SetOutcome takes; makes a salt
// where the opening has none; and commits to opening.Arguments and opening.Outcome.Result where f does not do so yet.
// (With a result_blob f.Result must be set, under opening.ResultSalt: see Committer. FromClaims sets f.Arguments.) A
// state of REFUSED makes the kind a refusal, which commits to opening.Arguments whatever the writ says. The salts are written into opening, so that sealing the same
// facts and opening again after a lost answer gives the same bytes and therefore the same receipt.
//
// Errors are evidence-svc's (STATEMENT_INVALID, CLAIM_TAKEN, CLAIM_TOKEN_INVALID, STORE_FULL, …), or an *Error about
// facts that make no statement.
func (s *Sealer) Seal(ctx context.Context, f Facts, opening *evidencev1.Opening, claimToken string) (*evidencev1.Receipt, error) {
	if opening == nil {
		return nil, bad("opening", "is missing")
	}
	if err := s.complete(&f, opening); err != nil {
		return nil, err
	}
	statement, err := Statement(f)
	if err != nil {
		return nil, err
	}
	envelope, err := Sign(statement, s.keyID, s.key)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Seal(ctx, &evidencev1.SealRequest{
		StatementEnvelope: envelope, ClaimToken: claimToken, Opening: opening, Namespace: f.Namespace,
	})
	if err != nil {
		return nil, err
	}
	if answer.GetReceipt().GetId() == "" {
		return nil, errors.New("evidence answered without a receipt")
	}
	return answer.GetReceipt(), nil
}

func (s *Sealer) complete(f *Facts, o *evidencev1.Opening) error {
	f.Executor = s.service
	if o.GetOutcome() != nil {
		f.SetOutcome(o.GetOutcome())
	}
	provider := f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START
	if f.State == commonv1.OutcomeState_OUTCOME_STATE_REFUSED && !provider {
		// A refusal is about the bytes that were presented, whatever the writ commits to.
		f.Kind, f.Arguments = evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL, nil
	}
	if f.Arguments == nil && !provider {
		if err := ensureSalt(&o.ArgumentsSalt); err != nil {
			return err
		}
		f.Arguments = Committed(o.GetArgumentsSalt(), o.GetArguments())
	}
	result := o.GetOutcome().GetResult()
	if f.Result == nil && len(result) > 0 {
		if err := ensureSalt(&o.ResultSalt); err != nil {
			return err
		}
		f.Result = Committed(o.GetResultSalt(), result)
	}
	return nil
}

func ensureSalt(salt *[]byte) (err error) {
	if len(*salt) == 0 {
		*salt, err = writtoken.NewSalt(rand.Reader)
	}
	return err
}
