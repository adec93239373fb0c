package errs

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/writ-dev/writ/internal/ids"
)

// Reasons of writ.common.v1.ErrorReason for errors that nobody made on purpose. They are text here, so that this
// package stands below the contract; a test compares them.
const (
	reasonInternal      = "INTERNAL"
	reasonPeer          = "PEER_UNAVAILABLE"
	reasonCancelled     = "CANCELLED"
	reasonDeadline      = "DEADLINE_EXCEEDED"
	reasonForeign       = "FOREIGN_STATUS"
	reasonLimit         = "LIMIT_EXCEEDED"
	reasonUnimplemented = "UNIMPLEMENTED"
)

// Status turns any error into the status that a client may see, with exactly one ErrorInfo. nil gives nil.
// Who can write a log uses Public instead, so that hidden text is found again by its id.
func Status(err error) *status.Status {
	st, _ := Public(err)
	return st
}

// Public is Status, and says under which id the text of err was hidden: "" where it was not, and then there is
// nothing to log. A caller that gets an id logs it with err.
func Public(err error) (st *status.Status, hiddenID string) {
	if err == nil {
		return nil, ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.GRPCStatus(), ""
	}
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carrier) {
		return publicStatus(carrier.GRPCStatus())
	}
	switch {
	case errors.Is(err, context.Canceled):
		return made(codes.Canceled, reasonCancelled, "the call was cancelled").GRPCStatus(), ""
	case errors.Is(err, context.DeadlineExceeded):
		return made(codes.DeadlineExceeded, reasonDeadline, "the call's deadline passed").GRPCStatus(), ""
	}
	return hidden(codes.Internal, reasonInternal, "an internal error; the service's log has it under the id")
}

// publicStatus handles a status that came from a library or another service. One with an ErrorInfo was made for
// clients and passes; of the others the text passes only where the code says that it is about the request.
func publicStatus(st *status.Status) (*status.Status, string) {
	if i := infoOf(st); i != nil {
		return withOneInfo(st), ""
	}
	switch st.Code() {
	case codes.OK:
		return hidden(codes.Internal, reasonInternal, "an internal error; the service's log has it under the id")
	case codes.Canceled:
		return made(codes.Canceled, reasonCancelled, "the call was cancelled").GRPCStatus(), ""
	case codes.DeadlineExceeded:
		return made(codes.DeadlineExceeded, reasonDeadline, "the call's deadline passed").GRPCStatus(), ""
	case codes.Unavailable:
		return hidden(codes.Unavailable, reasonPeer, "a service that this call needs does not answer; try again, and see `writ doctor`")
	case codes.Unknown, codes.Internal, codes.DataLoss:
		return hidden(codes.Internal, reasonInternal, "an internal error; the service's log has it under the id")
	case codes.Unimplemented:
		return made(st.Code(), reasonUnimplemented, st.Message()).GRPCStatus(), ""
	case codes.ResourceExhausted:
		if strings.Contains(st.Message(), "larger than max") {
			return tooLarge(st).GRPCStatus(), ""
		}
	}
	return made(st.Code(), reasonForeign, st.Message()).GRPCStatus(), ""
}

// withOneInfo drops every ErrorInfo but the first.
func withOneInfo(st *status.Status) *status.Status {
	p := st.Proto()
	kept := make([]*anypb.Any, 0, len(p.GetDetails()))
	seen := false
	for _, d := range p.GetDetails() {
		if d.MessageIs((*errdetails.ErrorInfo)(nil)) {
			if seen {
				continue
			}
			seen = true
		}
		kept = append(kept, d)
	}
	p.Details = kept
	return status.FromProto(p)
}

func made(code codes.Code, reason, message string) *Error {
	return build(code, reason, "", message, "", nil)
}

// tooLarge is grpc's own refusal of a message.
func tooLarge(st *status.Status) *Error {
	e := made(st.Code(), reasonLimit, st.Message())
	e.set(KeyLimitName, "message_max_bytes")
	e.set(KeyNext, "Send less at a time; what is large travels as a stream or as a blob.")
	return e
}

func hidden(code codes.Code, reason, message string) (*status.Status, string) {
	id := ids.New("e_", rand.Reader)
	e := made(code, reason, message)
	e.set(KeyID, id)
	return e.GRPCStatus(), id
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
