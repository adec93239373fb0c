package evidence

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/evidence-svc/internal/seal"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/sqlitedb"
)

// storeError maps what a store or the file system says. A full or read-only disk is STORE_FULL; other errors of the
// store carry their own status.
func storeError(err error) error {
	var db *sqlitedb.Error
	var file *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &db):
		if db.Kind == sqlitedb.Full || db.Kind == sqlitedb.ReadOnly {
			return full(db.Path, err)
		}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		name := "blobs"
		if errors.As(err, &file) {
			name = file.Path
		} else if errors.As(err, &link) {
			name = link.New
		}
		return full(name, err)
	}
	return err
}

func full(name string, cause error) error {
	return errs.WithCause(errs.New(codes.ResourceExhausted, evidencev1.ErrorReason_ERROR_REASON_STORE_FULL, name,
		"the disk of "+name+" is full or read-only; nothing was stored", "Make room on the disk, or make it writable, and try again."), cause)
}

func claimTaken(call string, t *store.Taken) error {
	next := "Look up the recorded outcome by the call's name; nothing runs again."
	if t.Receipt == "" {
		next = "Wait for the call that runs; its outcome is found by the call's name."
	}
	return errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, call,
		"the call "+call+" is claimed", next, "receipt", t.Receipt, "executor", t.Executor)
}

func claimTokenInvalid(call string) error {
	return errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TOKEN_INVALID, call,
		"the token is not that of an open claim of this call, this writ and this service",
		"Seal with the token that Claim or ListOpenClaims gave to this service.")
}

// writRefused passes on what the verifier says.
func writRefused(err error) error {
	var w *writtoken.Error
	if !errors.As(err, &w) {
		return err
	}
	return errs.WithCause(errs.New(codes.PermissionDenied, evidencev1.ErrorReason_ERROR_REASON_WRIT_REFUSED, w.Field, w.Error(),
		w.Reason.Next(), "writ_reason", string(w.Reason)), err)
}

// statementInvalid names the field that is wrong.
func statementInvalid(err error) error {
	var form *receipt.Error
	var mismatch *seal.Mismatch
	field := "statement_envelope"
	switch {
	case errors.As(err, &form):
		field = form.Field
	case errors.As(err, &mismatch):
		field = mismatch.Field
	default:
		return storeError(err)
	}
	return errs.Field(evidencev1.ErrorReason_ERROR_REASON_STATEMENT_INVALID, field, err.Error(),
		"Sign a statement that says what the writ, the request and the opening say.")
}

func notFound(reason evidencev1.ErrorReason, what, name string) error {
	return errs.New(codes.NotFound, reason, name, "there is no "+what+" "+name+" that you may see",
		"Check the name; another principal's and another namespace's are not shown.")
}
