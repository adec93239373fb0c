// Package fault holds the errors of registry-svc's domain: what is wrong, with what, and what to do next. The root
// package turns them into statuses; nothing here knows of gRPC.
package fault

import (
	"errors"
	"strconv"
)

// Kind says what is wrong. Each has one reason in the contract.
type Kind int

// The kinds.
const (
	Internal Kind = iota
	FieldInvalid
	LimitExceeded
	PageTokenInvalid
	CursorInvalid
	ShuttingDown
	JSONInvalid
	PeerUnavailable
	DeadlineExceeded
	ConnectorExists
	ConnectorNotFound
	ConfiguredInFile
	ConfigurationInvalid
	VariableNotBound
	NameReserved
	TurnNotFound
	ToolNotInTurn
	ConversationTaken
	AgentNotAllowed
	WorkspaceForbidden
	WorkspaceOutsideRoots
	WorkspaceUnusable
	AliasCollision
	ModeNotAllowed
	TooManyTurns
)

// Error is an error of the domain.
type Error struct {
	Kind     Kind
	Field    string // path of the request field that is wrong, empty where none is
	Name     string // the thing that it is about
	Message  string // what is wrong, a sentence without full stop
	Next     string // what to do next, a sentence
	Metadata []string
	cause    error
}

// New makes an error; kv is further metadata as key, value, key, value.
func New(kind Kind, name, message, next string, kv ...string) *Error {
	return &Error{Kind: kind, Name: name, Message: message, Next: next, Metadata: kv}
}

// OfField makes an error about one field of the request.
func OfField(kind Kind, field, name, message, next string, kv ...string) *Error {
	return &Error{Kind: kind, Field: field, Name: name, Message: message, Next: next, Metadata: kv}
}

// Limit makes an error about a limit, by the name that docs/limits.md has for it.
func Limit(kind Kind, limitName string, limit, got int64, next string) *Error {
	l, g := strconv.FormatInt(limit, 10), strconv.FormatInt(got, 10)
	return &Error{
		Kind: kind, Name: limitName, Message: limitName + " is " + l + ", this is " + g, Next: next,
		Metadata: []string{"limit_name", limitName, "limit", l, "got", g},
	}
}

// Because keeps the cause for the log; it is never sent.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

func (e *Error) Error() string {
	s := e.Message
	if e.Name != "" {
		s = e.Name + ": " + s
	}
	if e.Next != "" {
		s += " (" + e.Next + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is tells whether err is a fault of that kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}
