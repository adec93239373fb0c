// Package card is the durable question to a person, then the durable record of the answer.
package card

import (
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/preview"
)

// Content is what never changes: all that showing, deciding and resuming needs.
type Content struct {
	ID           string
	Namespace    string
	Turn, Call   string
	Principal    actor.Actor
	AssertedBy   string
	Agent        string
	Conversation string
	Project      string
	Tool         Tool
	Class        commonv1.SecurityClass
	Mode         commonv1.Mode
	Why          string
	Preview      preview.Preview
	Offers       []Offer
	Reach        []string
	Enforcement  string
	AskTime      time.Time
	TraceID      string
	Traceparent  string
	Tracestate   string
	Arguments    []byte `json:"-"` // stored beside
	SHA256       string // of the arguments
	Salt         []byte // of the commitments to the arguments
	Words        []string
	Command      bool
}

// Tool is the contract that the model saw.
type Tool struct{ ID, Fingerprint, Semantic, Provider, ProviderDigest string }

// Offer is one thing that an answer may remember.
type Offer struct {
	Lifetime permissionv1.Lifetime
	Text     string
	Word     string // of a command
}

// Card is the content with where it stands.
type Card struct {
	Content
	State      permissionv1.CardState
	Version    int64 // counts changes from 1
	Seq        int64 // the place of its making in the order of all changes
	DecideTime time.Time
	DecidedBy  actor.Actor
	Lifetime   permissionv1.Lifetime
	Reason     string // the decider's; foreign text
	Grant      string
	End        End
}

// End is how the call ended here, once it did: denied, cancelled or stale, with the receipt that says so. It never changes
// any more.
type End struct {
	State   commonv1.OutcomeState
	Reason  permissionv1.ErrorReason
	Changed string // for stale: what
	Receipt string
}

// Offered finds the offer of a lifetime. ONCE needs no offer.
func (c Card) Offered(l permissionv1.Lifetime) (Offer, bool) {
	for _, o := range c.Offers {
		if o.Lifetime == l {
			return o, true
		}
	}
	return Offer{Lifetime: l}, l == permissionv1.Lifetime_LIFETIME_ONCE
}

// Asked is the card as it was when it was asked, for who replays the changes in their order.
func (c Card) Asked() Card {
	return Card{Content: c.Content, State: permissionv1.CardState_CARD_STATE_PENDING, Version: 1, Seq: c.Seq}
}
