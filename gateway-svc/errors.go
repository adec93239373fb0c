package gateway

import (
	"context"
	"errors"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/rawjson"
)

const attachAgain = "The call itself is not lost: attach again by its name."

// statusError is what a caller sees of an error of the conductor's. name is the call's.
func statusError(err error, name string) error {
	var (
		away     *conduct.UnavailableError
		tooMany  *conduct.TooManyError
		executor *conduct.ExecutorError
		stopped  *conduct.CancelledError
		peer     *conduct.PeerError
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, conduct.ErrStopping):
		return errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, ServiceName,
			"the gateway is stopping; the call goes on", "Connect again and attach by the call's name.")
	case errors.Is(err, conduct.ErrNotFound):
		return errs.New(codes.NotFound, gatewayv1.ErrorReason_ERROR_REASON_CALL_NOT_FOUND, name,
			"there is no such call of yours", "List your calls, or make the call.")
	case errors.Is(err, conduct.ErrTurnNotFound):
		return errs.New(codes.NotFound, permissionv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND, turnOf(name),
			"there is no such turn of yours", "Open a turn.")
	case errors.Is(err, conduct.ErrChanged):
		return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_CALL_CHANGED, name,
			"the call was made before with another tool or other arguments", "Use a new call id, or send exactly the same again.")
	case errors.As(err, &tooMany):
		return errs.Limit(gatewayv1.ErrorReason_ERROR_REASON_TOO_MANY_CALLS, tooMany.Limit, int64(tooMany.Max), int64(tooMany.Max)+1,
			"Wait until calls have ended.")
	case errors.As(err, &executor):
		return errs.WithCause(errs.New(codes.Unavailable, gatewayv1.ErrorReason_ERROR_REASON_EXECUTOR_UNAVAILABLE, executor.Name,
			"the executor can't be reached; nothing ran", "Call again with the same id; `writ doctor` says what is wrong."), err)
	case errors.As(err, &stopped):
		return errs.New(codes.Canceled, permissionv1.ErrorReason_ERROR_REASON_CALL_CANCELLED, stopped.Name,
			"the call was cancelled before it began", "Make a new call if it is still wanted.", "begun", "false")
	case errors.As(err, &away):
		return errs.WithCause(errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, away.Peer,
			"a service that this call needs does not answer", attachAgain), err)
	case errors.As(err, &peer):
		return peerStatus(peer)
	}
	return err
}

// peerStatus passes on what a peer answered; one that did not answer is named.
func peerStatus(p *conduct.PeerError) error {
	if errors.Is(p.Err, context.Canceled) || errors.Is(p.Err, context.DeadlineExceeded) || errs.ReasonOf(p.Err) != "" {
		return p.Err
	}
	if p.Kind != conduct.Away {
		return p.Err
	}
	return errs.WithCause(errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, p.Peer,
		"a service that this call needs does not answer", "Call again with the same id; `writ doctor` says what is wrong."), p.Err)
}

// outcomeStatus is a status for an outcome.
func outcomeStatus(err error) *statuspb.Status { return errs.Status(statusError(err, "")).Proto() }

// peerError says how a request to a peer failed.
func peerError(peer string, err error) error {
	if err == nil {
		return nil
	}
	return &conduct.PeerError{Peer: peer, Kind: kindOf(err), Err: err}
}

func kindOf(err error) conduct.Kind {
	if errs.ReasonOf(err) == "CLAIM_TAKEN" {
		return conduct.Taken
	}
	switch status.Code(err) {
	case codes.NotFound:
		return conduct.Missing
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown, codes.DataLoss, codes.Aborted:
		return conduct.Away
	}
	return conduct.Refused
}

// checkArguments holds the bytes against what the design's rule 2 lets in.
func checkArguments(b []byte, l Limits) error {
	err := rawjson.CheckObject(b, rawjson.Limits{MaxBytes: l.ArgumentsBytes, MaxDepth: l.ArgumentsDepth, MaxNames: l.ArgumentsNames})
	var bad *rawjson.Error
	if !errors.As(err, &bad) {
		return err
	}
	if name := bad.Kind.LimitName(); name != "" && bad.Kind != rawjson.TooDeep {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "arguments_"+limitWord(bad.Kind), int64(bad.Limit), int64(bad.Got),
			"Send less; what is large travels as a blob.")
	}
	kv := []string{"kind", bad.Kind.Word(), "offset", itoa(bad.Offset), "path", bad.Path}
	if bad.Kind == rawjson.TooDeep {
		kv = append(kv, errs.KeyLimitName, "arguments_max_depth", errs.KeyLimit, itoa(bad.Limit))
	}
	return errs.Field(commonv1.ErrorReason_ERROR_REASON_JSON_INVALID, "arguments", bad.Error(),
		"Send one JSON object: every name once, valid UTF-8, nothing after it.", kv...)
}

func limitWord(k rawjson.Kind) string {
	if k == rawjson.TooManyNames {
		return "max_names"
	}
	return "max_bytes"
}

func field(name, problem, next string) error {
	return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, name, problem, next)
}
