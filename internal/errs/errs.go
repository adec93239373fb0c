// Package errs makes the errors that Writ's services answer with.
//
// An error becomes a google.rpc.Status with exactly one ErrorInfo. Its reason is a value of an enum in the
// contract, its metadata names the offender (name), what to do next (next) and whatever else a program may need.
// An error that nobody made on purpose becomes INTERNAL with a random id: its text stays in the log.
package errs

import (
	"errors"
	"maps"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Domain is the ErrorInfo.domain of every error that Writ makes.
const Domain = "writ.dev"

// Keys of ErrorInfo.metadata that have a fixed meaning.
const (
	KeyName      = "name"       // the thing that the error is about
	KeyNext      = "next"       // what to do next, a sentence for a person
	KeyField     = "field"      // path of the offending request field
	KeyLimitName = "limit_name" // name of the setting that was hit
	KeyLimit     = "limit"      // its value
	KeyGot       = "got"        // what was asked for
	KeyID        = "id"         // id under which the log holds the hidden text
)

// Trailers carry errors, so foreign text in them is bounded. Bytes, and pairs.
const (
	maxText     = 2048
	maxMetadata = 24
)

// Error is an error with everything that its status will say. Make one with New, Field or Limit.
type Error struct {
	code       codes.Code
	reason     string
	domain     string
	message    string
	metadata   map[string]string
	violations []*errdetails.BadRequest_FieldViolation
	cause      error
}

// New makes an error. name is the thing that it is about, next what to do now (both may be empty), kv are further
// metadata as key, value, key, value. Text is made valid UTF-8 and cut at 2 KiB.
func New(code codes.Code, reason protoreflect.Enum, name, message, next string, kv ...string) error {
	return build(code, ReasonName(reason), name, message, next, kv)
}

// Field makes an INVALID_ARGUMENT error about one request field, given by its path ("turn.workspace").
// It carries a google.rpc.BadRequest as well.
func Field(reason protoreflect.Enum, field, problem, next string, kv ...string) error {
	return FieldViolations(reason, []Violation{{Field: field, Problem: problem}}, next, kv...)
}

// Violation is one thing that is wrong with one request field.
type Violation struct {
	Field   string // path, as written in the contract
	Problem string // what is wrong
	Rule    string // id of the rule in the contract that it breaks, "" if there is none
}

// FieldViolations is Field for several violations at once; the first one is the error's name and message.
func FieldViolations(reason protoreflect.Enum, violations []Violation, next string, kv ...string) error {
	first := Violation{Field: "request", Problem: "is not valid"}
	if len(violations) > 0 {
		first = violations[0]
	}
	e := build(codes.InvalidArgument, ReasonName(reason), first.Field, first.Field+": "+first.Problem, next,
		append([]string{KeyField, first.Field}, kv...))
	for i, v := range violations {
		if i == maxMetadata {
			break
		}
		e.violations = append(e.violations, &errdetails.BadRequest_FieldViolation{
			Field: clean(v.Field), Description: clean(v.Problem), Reason: e.reason,
		})
		if v.Rule != "" && i == 0 {
			e.set("rule", v.Rule)
		}
	}
	return e
}

// Limit makes a RESOURCE_EXHAUSTED error about the setting limitName (as docs/limits.md names it).
func Limit(reason protoreflect.Enum, limitName string, limit, got int64, next string) error {
	return build(codes.ResourceExhausted, ReasonName(reason), limitName,
		limitName+" is "+itoa(limit)+", asked for "+itoa(got), next,
		[]string{KeyLimitName, limitName, KeyLimit, itoa(limit), KeyGot, itoa(got)})
}

// WithCause keeps cause for the log and for errors.Is and errors.As; it is never sent.
// An err that this package did not make is returned unchanged.
func WithCause(err, cause error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.cause = cause
	return &c
}

func build(code codes.Code, reason, name, message, next string, kv []string) *Error {
	e := &Error{code: code, reason: reason, domain: Domain, message: clean(message), metadata: map[string]string{}}
	e.set(KeyName, name)
	e.set(KeyNext, next)
	for i := 0; i+1 < len(kv); i += 2 {
		e.set(kv[i], kv[i+1])
	}
	return e
}

func (e *Error) set(key, value string) {
	if value == "" || len(e.metadata) >= maxMetadata {
		return
	}
	e.metadata[clean(key)] = clean(value)
}

// Error is the text for a log or a terminal: reason, message and what to do next.
func (e *Error) Error() string {
	s := e.reason + ": " + e.message
	if next := e.metadata[KeyNext]; next != "" {
		s += " (" + next + ")"
	}
	return s
}

// Unwrap returns the cause, which is for the process that made the error only.
func (e *Error) Unwrap() error { return e.cause }

// Code is the gRPC code that the error is answered with.
func (e *Error) Code() codes.Code { return e.code }

// Message is the error's sentence, without reason and next step.
func (e *Error) Message() string { return e.message }

// GRPCStatus lets google.golang.org/grpc/status see the error as what it is.
func (e *Error) GRPCStatus() *status.Status {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: e.reason, Domain: e.domain, Metadata: maps.Clone(e.metadata)}}
	if len(e.violations) > 0 {
		details = append(details, &errdetails.BadRequest{FieldViolations: e.violations})
	}
	st := status.New(e.code, e.message)
	if full, err := st.WithDetails(details...); err == nil {
		return full
	}
	return st
}

// ReasonOf returns the reason of err's ErrorInfo, "" if it has none. It works on errors received over gRPC too.
func ReasonOf(err error) string { return info(err).GetReason() }

// Metadata returns the metadata of err's ErrorInfo, nil if it has none.
func Metadata(err error) map[string]string { return info(err).GetMetadata() }

// Is tells whether err carries the given reason of this product's contract.
func Is(err error, reason protoreflect.Enum) bool {
	i := info(err)
	return i.GetDomain() == Domain && i.GetReason() == ReasonName(reason)
}

func info(err error) *errdetails.ErrorInfo {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	return infoOf(st)
}

func infoOf(st *status.Status) *errdetails.ErrorInfo {
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i
		}
	}
	return nil
}

// ReasonName is a reason as it goes over the wire: the enum value's name without the prefix that the enum's values
// share, which is what its zero value has before UNSPECIFIED.
func ReasonName(reason protoreflect.Enum) string {
	values := reason.Descriptor().Values()
	v := values.ByNumber(reason.Number())
	if v == nil {
		return "UNSPECIFIED"
	}
	if zero := values.ByNumber(0); zero != nil {
		if prefix, ok := strings.CutSuffix(string(zero.Name()), "UNSPECIFIED"); ok {
			return strings.TrimPrefix(string(v.Name()), prefix)
		}
	}
	return string(v.Name())
}

// clean makes foreign text fit for a protobuf string in a trailer.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Cause returns what WithCause kept in err, nil if nothing: it is for the log of the process that made the error.
func Cause(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	return e.cause
}
