// Package store keeps what permission-svc must not lose: settings, cards with the order of their changes, cancellations,
// grants and keys. Every engine passes the suite of this package.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
	"github.com/writ-dev/writ/permission-svc/internal/setting"
)

// Errors of a store. Failures of the engine itself are its own.
var (
	ErrNotFound  = errors.New("not found")
	ErrVersion   = errors.New("changed since it was read")
	ErrDecided   = errors.New("decided")
	ErrGranted   = errors.New("a grant covers it meanwhile")
	ErrCancelled = errors.New("cancelled meanwhile")
)

// LimitError is a cap on open cards that was hit.
type LimitError struct {
	Name       string
	Limit, Got int64
}

// Error names the limit.
func (e *LimitError) Error() string { return fmt.Sprintf("%s is %d", e.Name, e.Limit) }

// Caps are the bounds on open cards.
type Caps struct{ PerTurn, PerPrincipal int64 }

// CallKey names a call.
type CallKey struct{ Namespace, Turn, Call string }

// Situation is everything that a decision on a call depends on, read at one moment.
type Situation struct {
	decide.Settled
	Card          *card.Card // nil: none
	CallCancelled bool
	TurnCancelled bool
}

// Answer is a person's.
type Answer struct {
	Namespace, Card string
	Version         int64
	Approve         bool
	Lifetime        permissionv1.Lifetime
	Reason          string
	By              actor.Actor
	At              time.Time
	Grant           *grant.Grant // what is remembered; nil: nothing
	// Check is asked about the pending card inside the commit; its error undoes the answer.
	Check func(card.Card) error
}

// Cancel cancels a call, or with Call "" a whole turn.
type Cancel struct {
	CallKey
	By     actor.Actor
	Reason string
	At     time.Time
}

// View is whose cards and grants may be seen. The zero View sees everything.
type View struct {
	Namespace string      // "": every namespace
	Principal actor.Actor // nobody: every principal
}

// CardFilter selects cards, newest first.
type CardFilter struct {
	View
	State              permissionv1.CardState
	Turn, Conversation string
	Before             int64 // only with a smaller Seq; 0: all
	Limit              int
	MaxBytes           int // of arguments in the answer; at least one card is returned
}

// Change is one change of a card, as it was then.
type Change struct {
	Seq  int64
	Card card.Card
}

// Key is a signing key.
type Key struct {
	KID        string
	Public     []byte
	Seed       []byte // nil: not kept here
	NotBefore  time.Time
	BeginTime  time.Time // when it became the current one; zero: it is the next
	RetireTime time.Time // when it ceased to be; zero: it has not
}

// Store is the storage of permission-svc.
type Store interface {
	Situation(ctx context.Context, key CallKey, f decide.Facts) (Situation, error)

	// CreateCard stores a new card, or returns the one that the call has already. Errors: *LimitError, ErrGranted when a
	// grant was made meanwhile that covers the call, ErrCancelled.
	CreateCard(ctx context.Context, c card.Card, call grant.Call, caps Caps) (card.Card, error)
	// Decide answers a card, makes the grant, and answers with it every other open card that the grant covers; all in one
	// commit. Errors: ErrNotFound; ErrDecided with the card as it is; ErrVersion.
	Decide(ctx context.Context, a Answer) (decided card.Card, released []card.Card, err error)
	// Cancel remembers the cancellation and cancels what is open.
	Cancel(ctx context.Context, c Cancel) ([]card.Card, error)
	// EndCard records how the call ended here, once: a later end changes nothing. A card that is still open is cancelled.
	EndCard(ctx context.Context, namespace, id string, end card.End, at time.Time) (card.Card, error)
	// Card returns one card, of any namespace where that is empty; ErrNotFound.
	Card(ctx context.Context, namespace, id string) (card.Card, error)
	// CardOfCall returns the card of a call; ErrNotFound.
	CardOfCall(ctx context.Context, key CallKey) (card.Card, error)
	Cards(ctx context.Context, f CardFilter) (cards []card.Card, more bool, err error)
	// Unended returns denied and cancelled cards whose end is not recorded, oldest first.
	Unended(ctx context.Context, limit int) ([]card.Card, error)
	// LastChange is the number of the newest change, 0 where there is none.
	LastChange(ctx context.Context) (int64, error)
	// Changes returns the changes after one number, in their order.
	Changes(ctx context.Context, v View, after int64, limit int) ([]Change, error)
	// Open returns the open cards made after one change and not after another, in the order of their making.
	Open(ctx context.Context, v View, after, upTo int64, limit int) ([]card.Card, error)

	Grants(ctx context.Context, v View, ended bool, before int64, limit int) (grants []grant.Grant, more bool, err error)
	// RevokeGrant ends a grant; one that ended already is returned as it is. ErrNotFound.
	RevokeGrant(ctx context.Context, namespace, id string, by actor.Actor, at time.Time) (grant.Grant, error)
	// Grant returns one grant; ErrNotFound.
	Grant(ctx context.Context, namespace, id string) (grant.Grant, error)

	Settings(ctx context.Context, namespace string) (setting.Settings, error)
	// PutSettings adds a version; ErrVersion when expected is not the current one (negative: any).
	PutSettings(ctx context.Context, namespace string, s setting.Settings, expected int64) (setting.Settings, error)
	// ToolSetting returns what is settled for exactly this name, nil for nothing.
	ToolSetting(ctx context.Context, namespace, tool string) (*setting.Tool, error)
	ToolSettings(ctx context.Context, namespace, after string, limit int) (tools []setting.Tool, more bool, err error)
	PutToolSetting(ctx context.Context, namespace string, t setting.Tool) error
	// PolicyVersion changes with every change of settings.
	PolicyVersion(ctx context.Context, namespace string) (string, error)

	Keys(ctx context.Context) ([]Key, error)
	// PutKeys inserts or updates keys in one commit.
	PutKeys(ctx context.Context, keys ...Key) error

	Ping(ctx context.Context) error
	Close() error
}
