package conduct

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

type state int

const (
	authorizing state = iota
	waiting
	running
	ended
)

// Call is a call that is conducted here, or ended here lately.
type Call struct {
	set *Set
	log *eventLog
	ask Ask // what was asked for; of an ended call without the arguments

	// What follows is guarded by the set's mutex.
	state        state
	accepted     bool
	canonical    string
	conversation string
	traceID      string
	card         *permissionv1.Card
	outcome      *commonv1.Outcome
	created, end time.Time
	digest       [sha256.Size]byte // of the arguments
	kept         int64
	place        *list.Element
	reason       string // why it was asked to stop

	stop chan struct{} // closed when it was asked to stop
	span Span

	// What follows belongs to the conductor's goroutine.
	effect     bool
	writ       string
	expiry     time.Time // of the last writ
	shown      time.Time // of the last writ that was presented
	lastSeq    int64
	begun      bool
	authorized string // the executor that the authorized event named
	presented  int
	cardTag    string
}

func newCall(s *Set, a Ask, after int64) *Call {
	c := &Call{
		set: s, ask: a, created: s.deps.Now(), digest: sha256.Sum256(a.Arguments), stop: make(chan struct{}),
		log: newLog(after, s.limits, &s.shared, s.deps.Now), effect: true,
	}
	if a.Claim != nil {
		c.canonical = a.Claim.Tool
	}
	if a.Card != nil {
		c.canonical, c.conversation = a.Card.GetTool().GetTool(), a.Card.GetConversation()
	}
	return c
}

// Watch sends the call's events after a cursor (0: all that are kept) until its outcome, which is always sent. It
// returns the error of a call that never came to be or whose outcome is not known, ErrStopping, or ctx's.
func (c *Call) Watch(ctx context.Context, after int64, send func(*gatewayv1.CallEvent) error) error {
	return c.log.watch(ctx, after, send)
}

// View is a call as it stands.
type View struct {
	Key       Key
	Principal *commonv1.Principal
	Created   time.Time
	Accepted  bool // it exists: permission-svc has answered
	Call      *gatewayv1.Call
}

// View returns the call as it stands, its outcome without the result unless whole.
func (c *Call) View(whole bool) View {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	return View{Key: c.ask.Key, Principal: c.ask.Principal, Created: c.created, Accepted: c.accepted, Call: c.message(whole)}
}

// Views is View of many, newest first.
func Views(calls []*Call) []View {
	views := make([]View, len(calls))
	for i, c := range calls {
		views[i] = c.View(false)
	}
	return sorted(views)
}

func (c *Call) message(whole bool) *gatewayv1.Call {
	m := &gatewayv1.Call{
		Name: c.ask.Name(), Tool: c.canonical, TraceId: c.traceID, Conversation: c.conversation,
		CreateTime: timestamppb.New(c.created),
	}
	if m.Tool == "" {
		m.Tool = c.ask.Tool
	}
	switch c.state {
	case authorizing:
		m.State = gatewayv1.CallState_CALL_STATE_AUTHORIZING
	case waiting:
		m.State = gatewayv1.CallState_CALL_STATE_WAITING
		m.Card = c.card.GetId()
	case running:
		m.State = gatewayv1.CallState_CALL_STATE_RUNNING
	case ended:
		m.State = gatewayv1.CallState_CALL_STATE_ENDED
		m.EndTime = timestamppb.New(c.end)
		m.Outcome = c.outcome
		if !whole {
			m.Outcome = WithoutResult(c.outcome)
		}
	}
	m.WaitMs = WaitMillis(c.card)
	return m
}

// WaitMillis is how long a person took to answer a card.
func WaitMillis(card *permissionv1.Card) int64 {
	if card.GetAskTime() == nil || card.GetDecideTime() == nil {
		return 0
	}
	return card.GetDecideTime().AsTime().Sub(card.GetAskTime().AsTime()).Milliseconds()
}

// WithoutResult is the outcome as lists show it.
func WithoutResult(o *commonv1.Outcome) *commonv1.Outcome {
	if len(o.GetResult()) == 0 {
		return o
	}
	short := &commonv1.Outcome{
		State: o.GetState(), Status: o.GetStatus(), ResultBlob: o.GetResultBlob(), Credential: o.GetCredential(),
		Enforcement: o.GetEnforcement(), Receipt: o.GetReceipt(), BeginTime: o.GetBeginTime(), EndTime: o.GetEndTime(),
		Survivors: o.GetSurvivors(),
	}
	return proto.CloneOf(short)
}

// Cancel asks the call to stop. For one that waits for a person the card is cancelled before Cancel returns; what runs
// is asked by its conductor. It is not an error when the call ended.
func (c *Call) Cancel(ctx context.Context, reason string) error {
	c.set.mu.Lock()
	st, ask := c.state, c.ask
	c.set.mu.Unlock()
	if st == waiting {
		if err := c.set.deps.Permission.CancelCards(ctx, ask, reason); err != nil {
			return err
		}
	}
	c.askToStop(reason)
	return nil
}

func (c *Call) askToStop(reason string) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	select {
	case <-c.stop:
	default:
		c.reason = reason
		close(c.stop)
	}
}

func (c *Call) stopReason() string {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	return c.reason
}

func (c *Call) askedToStop() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// mayBeMadeAgain tells whether a request begins anew where this call ended: after a refusal, which took no claim; and
// where this one was found by its claim only, so that the record has to say whether the arguments are the same.
func (c *Call) mayBeMadeAgain(a Ask) bool {
	if c.state != ended {
		return false
	}
	request := a.Card == nil && a.Claim == nil
	return c.outcome.GetState() == commonv1.OutcomeState_OUTCOME_STATE_REFUSED || request && c.unproven()
}

// unproven tells whether it is not known here which arguments the call was made with.
func (c *Call) unproven() bool { return c.ask.Claim != nil && c.ask.Claim.Matches == nil }

// Answers tells whether the recorded call is the one that is asked for. It asks the record only where a conductor that
// found the call by its claim could not know; nil where it is, ErrChanged where it is not.
func (c *Call) Answers(ctx context.Context, a Ask) error {
	if !c.unproven() {
		return nil
	}
	r, err := c.set.deps.Record.Recorded(ctx, a.Key, a.Principal)
	if err != nil {
		return err
	}
	return r.same(a)
}

// matches compares a repeated request with this call.
func (c *Call) matches(a Ask) error {
	if a.Card != nil || a.Claim != nil {
		return nil // not a request: the same call found again on its card or claim
	}
	canonical := c.canonical
	if canonical == "" {
		canonical = c.ask.Tool
	}
	if a.Tool != c.ask.Tool && !sameTool(a.Tool, canonical) && !sameTool(c.ask.Tool, a.Tool) {
		return ErrChanged
	}
	if claim := c.ask.Claim; claim != nil {
		if claim.Matches != nil && !claim.Matches(a.Arguments) {
			return ErrChanged
		}
		return nil
	}
	if d := sha256.Sum256(a.Arguments); !bytes.Equal(d[:], c.digest[:]) {
		return ErrChanged
	}
	return nil
}
