package errs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/descriptorpb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

func infos(st *status.Status) (out []*errdetails.ErrorInfo) {
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			out = append(out, i)
		}
	}
	return out
}

// The design's rule 7: reason, offending name, what to do next, in exactly one ErrorInfo, also after the wire.
func TestAnErrorNamesReasonThingAndNextStep(t *testing.T) {
	err := errs.New(codes.NotFound, code.Code_NOT_FOUND, "turns/t_1", "there is no such turn", "Open one with `writ turn open`.", "turn", "t_1")
	wire := status.FromProto(status.Convert(fmt.Errorf("while resolving: %w", err)).Proto()).Err()

	for name, e := range map[string]error{"made": err, "received": wire} {
		if got := errs.ReasonOf(e); got != "NOT_FOUND" {
			t.Errorf("%s: reason %q", name, got)
		}
		m := errs.Metadata(e)
		if m[errs.KeyName] != "turns/t_1" || !strings.Contains(m[errs.KeyNext], "writ turn open") || m["turn"] != "t_1" {
			t.Errorf("%s: metadata %v", name, m)
		}
		if n := len(infos(errs.Status(e))); n != 1 {
			t.Errorf("%s: %d ErrorInfos", name, n)
		}
		if !errs.Is(e, code.Code_NOT_FOUND) || errs.Is(e, code.Code_ABORTED) {
			t.Errorf("%s: Is does not tell reasons apart", name)
		}
	}
}

// The wire reason has no enum prefix, whatever the enum's words are.
func TestReasonNameCutsThePrefixOfTheEnum(t *testing.T) {
	if got := errs.ReasonName(descriptorpb.FieldOptions_JS_NORMAL); got != "JS_NORMAL" {
		t.Errorf("an enum without UNSPECIFIED keeps its names: %q", got)
	}
	if got := errs.ReasonName(descriptorpb.FieldOptions_TARGET_TYPE_FIELD); got != "TARGET_TYPE_FIELD" {
		t.Errorf("%q", got)
	}
	if got := errs.ReasonName(descriptorpb.FeatureSet_EXPLICIT); got != "EXPLICIT" {
		t.Errorf("%q", got)
	}
	if got := errs.ReasonName(code.Code(9999)); got != "UNSPECIFIED" {
		t.Errorf("an unknown value: %q", got)
	}
}

func TestBadInputNamesTheField(t *testing.T) {
	st := errs.Status(errs.Field(code.Code_INVALID_ARGUMENT, "turn.workspace", "is the file system's root", "Name a folder below it."))
	if st.Code() != codes.InvalidArgument || len(infos(st)) != 1 {
		t.Fatalf("%v", st)
	}
	for _, d := range st.Details() {
		if br, ok := d.(*errdetails.BadRequest); ok {
			if f := br.GetFieldViolations(); len(f) != 1 || f[0].GetField() != "turn.workspace" {
				t.Errorf("violations %v", f)
			}
			return
		}
	}
	t.Error("no BadRequest")
}

func TestALimitNamesItselfAndBothNumbers(t *testing.T) {
	err := errs.Limit(code.Code_RESOURCE_EXHAUSTED, "call.arguments_bytes", 1<<20, 2<<20, "Send less.")
	m := errs.Metadata(err)
	if m[errs.KeyLimitName] != "call.arguments_bytes" || m[errs.KeyLimit] != "1048576" || m[errs.KeyGot] != "2097152" {
		t.Errorf("%v", m)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Error(status.Code(err))
	}
}

// R42's sibling: what nobody foresaw tells a client nothing of the inside.
func TestUnknownErrorsHideTheirText(t *testing.T) {
	const secret = "open /home/x/.writ/tokens/approver: tok_123"
	for _, err := range []error{
		errors.New(secret),
		status.Error(codes.Unknown, secret),
		status.Error(codes.Internal, secret),
		status.Error(codes.Unavailable, "dial unix /home/x/.writ: tok_123"),
	} {
		st, id := errs.Public(err)
		if id == "" || strings.Contains(st.String(), "tok_123") || strings.Contains(fmt.Sprint(st.Details()), "tok_123") {
			t.Errorf("%v became %v (%s)", err, st, id)
		}
		if in := infos(st); len(in) != 1 || in[0].GetMetadata()[errs.KeyID] != id {
			t.Errorf("the id is not in the one ErrorInfo: %v", in)
		}
	}
	if a, b := errs.Metadata(errs.Status(errors.New("x")).Err()), errs.Metadata(errs.Status(errors.New("x")).Err()); a["id"] == b["id"] {
		t.Error("two errors share an id")
	}
}

func TestACauseIsForTheLogOnly(t *testing.T) {
	cause := errors.New("SQLITE_FULL on /secret")
	err := errs.WithCause(errs.New(codes.ResourceExhausted, code.Code_RESOURCE_EXHAUSTED, "registry.db", "the store is full", "Free space."), cause)
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if s := errs.Status(err); strings.Contains(s.String(), "SQLITE") || strings.Contains(err.Error(), "SQLITE") {
		t.Errorf("the cause is sent: %v", s)
	}
}

func TestEveryStatusGetsExactlyOneErrorInfo(t *testing.T) {
	two, err := status.New(codes.Aborted, "x").WithDetails(
		&errdetails.ErrorInfo{Reason: "A"}, &errdetails.ErrorInfo{Reason: "B"})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[error]codes.Code{
		two.Err():                codes.Aborted,
		context.Canceled:         codes.Canceled,
		context.DeadlineExceeded: codes.DeadlineExceeded,
		status.Error(codes.NotFound, "unknown service"):                                           codes.NotFound,
		status.Error(codes.Unimplemented, "unknown method"):                                       codes.Unimplemented,
		status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)"): codes.ResourceExhausted,
		fmt.Errorf("wrapped: %w", status.Error(codes.Canceled, "x")):                              codes.Canceled,
	}
	for in, want := range cases {
		st := errs.Status(in)
		if st.Code() != want || len(infos(st)) != 1 {
			t.Errorf("%v: %v with %d ErrorInfos", in, st.Code(), len(infos(st)))
		}
	}
	if errs.Status(nil) != nil || errs.ReasonOf(nil) != "" || errs.Metadata(errors.New("x")) != nil {
		t.Error("nothing in, something out")
	}
}

// Foreign names reach error texts; they must neither break the encoding nor fill the trailer.
func TestForeignTextIsBoundedAndValid(t *testing.T) {
	err := errs.New(codes.NotFound, code.Code_NOT_FOUND, "bad\xff"+strings.Repeat("é", 10_000), "m", "")
	name := errs.Metadata(err)[errs.KeyName]
	if len(name) > 2100 || !utf8.ValidString(name) {
		t.Errorf("%d bytes, valid %v", len(name), utf8.ValidString(name))
	}
}

// What the kit answers by itself is in the contract as well.
func TestTheKitsOwnReasonsAreInTheContract(t *testing.T) {
	for _, err := range []error{
		errors.New("x"), context.Canceled, context.DeadlineExceeded, status.Error(codes.Unavailable, "x"),
		status.Error(codes.NotFound, "x"), status.Error(codes.Unimplemented, "x"), status.Error(codes.ResourceExhausted, "larger than max"),
	} {
		reason := errs.ReasonOf(errs.Status(err).Err())
		if _, ok := commonv1.ErrorReason_value["ERROR_REASON_"+reason]; !ok {
			t.Errorf("%v is answered with %q, which the contract does not have", err, reason)
		}
	}
}
