package conduct

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

// step is what a stage comes to: an outcome, an error without an outcome, or neither, and then the call is authorized
// and presented once more.
type step struct {
	outcome *commonv1.Outcome
	err     error
}

func (s step) over() bool { return s.outcome != nil || s.err != nil }

var again = step{}

// run is the life of a conductor.
func (c *Call) run(caller context.Context) {
	ctx, span := c.set.deps.Tracer.Call(c.set.base, caller, c.ask)
	c.span = span
	c.set.mu.Lock()
	c.traceID = span.TraceID()
	c.set.mu.Unlock()
	end := c.conduct(ctx)
	if end.outcome == nil && c.set.base.Err() != nil {
		end.err = ErrStopping
	}
	if end.outcome == nil && c.accepted && !errors.Is(end.err, ErrStopping) {
		c.set.deps.Log.WarnContext(ctx, "a call is no longer conducted here", "call", c.ask.Name(), "error", end.err)
	}
	span.End(end.outcome.GetState().String(), reasonOf(end.outcome), end.outcome.GetReceipt(), end.err)
	c.set.finish(c, end.outcome, end.err)
}

func (c *Call) conduct(ctx context.Context) step {
	if end := c.consult(ctx); end.over() {
		return end
	}
	pause := c.backoff()
	for round := 0; ; round++ {
		answer, err := c.authorize(ctx)
		if err != nil {
			return c.unauthorized(ctx, err)
		}
		end := c.decided(ctx, answer)
		if end.over() {
			return end
		}
		if round == 0 {
			continue // after a person's answer nobody waits; only a peer that goes in circles is slowed down
		}
		if err := pause.wait(ctx); err != nil {
			return step{err: err}
		}
	}
}

// consult looks whether the call is known already. It comes to nothing when it is not.
func (c *Call) consult(ctx context.Context) step {
	if c.ask.Card != nil {
		c.accept()
	}
	if claim := c.ask.Claim; claim != nil {
		c.accept()
		return c.underClaim(ctx, claim)
	}
	if !c.ask.Given && c.ask.Card == nil {
		return again
	}
	claim, err := c.askForClaim(ctx)
	switch {
	case err != nil && kindOf(err) == Missing:
		return again
	case err != nil:
		return step{err: err}
	case claim.Sealed:
		return c.known(ctx)
	}
	if err := c.set.deps.Turns.Owned(ctx, c.ask.Turn, c.ask.Principal); err != nil {
		return step{err: err}
	}
	if claim.Tool != "" && !sameTool(c.ask.Tool, claim.Tool) || claim.Matches != nil && !claim.Matches(c.ask.Arguments) {
		return step{err: ErrChanged}
	}
	c.accept()
	return c.underClaim(ctx, &claim)
}

// askForClaim asks evidence once for a caller who waits for the answer, and patiently for a card, since nobody else may
// come back for it.
func (c *Call) askForClaim(ctx context.Context) (Claim, error) {
	pause, patience := c.backoff(), c.patience()
	for {
		claim, err := c.set.deps.Record.Claim(ctx, c.ask.Key)
		if err == nil || kindOf(err) != Away || !c.accepted || patience.over() {
			return claim, err
		}
		if err := pause.wait(ctx); err != nil {
			return claim, err
		}
	}
}

func (c *Call) underClaim(ctx context.Context, claim *Claim) step {
	c.learn(claim.Tool, "")
	c.set.move(c, running)
	c.begun, c.effect = true, claim.Durable
	end := c.resolve(ctx, claim.Executor)
	if !end.over() && c.ask.Claim != nil {
		// Found by its claim only: the arguments are not known here, so it can't be presented again.
		return c.refuse(ctx, &ExecutorError{Name: claim.Executor, Err: errors.New("the execution is gone")})
	}
	if end.outcome != nil && c.ask.Claim == nil && claim.Matches == nil {
		if known := c.recorded(ctx); errors.Is(known.err, ErrChanged) {
			return known
		}
	}
	return end
}

// known answers from the record. Another principal's call is not there: the answer is that of Authorize.
func (c *Call) known(ctx context.Context) step {
	end := c.recorded(ctx)
	if kindOf(end.err) == Missing && end.err != nil {
		return again
	}
	if end.outcome != nil {
		c.accept()
	}
	return end
}

// recorded reads the outcome from the receipt and holds it against what is asked.
func (c *Call) recorded(ctx context.Context) step {
	r, err := c.set.deps.Record.Recorded(ctx, c.ask.Key, c.ask.Principal)
	if err != nil {
		return step{err: err}
	}
	if c.ask.Claim == nil {
		if err := r.same(c.ask); err != nil {
			return step{err: err}
		}
	}
	c.learn(r.Tool, r.Conversation)
	return step{outcome: r.Outcome}
}

// authorize asks until there is an answer. Before the call exists one try has to do.
func (c *Call) authorize(ctx context.Context) (*permissionv1.AuthorizeResponse, error) {
	pause, patience := c.backoff(), c.patience()
	for {
		answer, err := c.set.deps.Permission.Authorize(ctx, c.ask)
		if err == nil || !c.accepted || kindOf(err) != Away {
			return answer, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// A card never times out (R49): who waits for a person waits for permission-svc too.
		if c.card == nil && patience.over() {
			return nil, &UnavailableError{Peer: "permission", Err: err}
		}
		if err := pause.wait(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *Call) unauthorized(ctx context.Context, err error) step {
	var away *UnavailableError
	switch {
	case !c.accepted || ctx.Err() != nil:
		return step{err: err}
	case errors.As(err, &away):
		return c.lapse(ctx, err, "permission")
	}
	return c.refuse(ctx, err)
}

func (c *Call) decided(ctx context.Context, answer *permissionv1.AuthorizeResponse) step {
	switch d := answer.GetDecision().(type) {
	case *permissionv1.AuthorizeResponse_Denied:
		c.accept()
		return c.denied(ctx, d.Denied)
	case *permissionv1.AuthorizeResponse_Pending:
		c.learn(d.Pending.GetCard().GetTool().GetTool(), d.Pending.GetCard().GetConversation())
		c.accept()
		return c.wait(ctx, d.Pending.GetCard())
	case *permissionv1.AuthorizeResponse_Allowed:
		c.readWrit(d.Allowed)
		c.accept()
		return c.present(ctx, d.Allowed)
	}
	c.accept()
	return c.refuse(ctx, &PeerError{Peer: "permission", Kind: Refused, Err: errors.New("the answer holds no decision that is known here")})
}

func (c *Call) readWrit(a *permissionv1.Allowed) {
	c.writ, c.expiry = a.GetWrit(), a.GetExpireTime().AsTime()
	if w, ok := c.set.deps.ReadWrit(a.GetWrit()); ok {
		c.effect, c.expiry = w.Effect, w.Expiry
		c.learn(w.Tool, w.Conversation)
	}
}

// wait is the stage in which a person is asked. It ends when the card is decided, or when the call is cancelled.
func (c *Call) wait(ctx context.Context, card *permissionv1.Card) step {
	c.keepCard(card)
	c.set.move(c, waiting) // before the event, so that who sees the card can also see and cancel the wait
	c.showCard(card)
	defer c.set.move(c, authorizing)
	pause := c.backoff()
	for c.pending() {
		err := c.watchCard(ctx)
		if ctx.Err() != nil {
			return step{err: ctx.Err()}
		}
		if c.askedToStop() {
			c.cancelCard(ctx)
			return again
		}
		if err != nil && kindOf(err) != Away {
			return again // Authorize says what is wrong
		}
		if !c.pending() {
			return again
		}
		if err := pause.wait(ctx); err != nil {
			return step{err: err}
		}
	}
	return again
}

func (c *Call) pending() bool {
	return c.card.GetState() == permissionv1.CardState_CARD_STATE_PENDING
}

func (c *Call) watchCard(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := c.set.deps.Permission.WatchDecision(ctx, c.ask, func(card *permissionv1.Card) {
		c.showCard(card)
		if !c.pending() {
			cancel()
		}
	})
	cancel()
	<-done
	return err
}

// cancelCard makes permission-svc remember that the call is cancelled; it seals the receipt.
func (c *Call) cancelCard(ctx context.Context) {
	if err := c.set.deps.Permission.CancelCards(ctx, c.ask, c.stopReason()); err != nil {
		c.set.deps.Log.WarnContext(ctx, "the card of a cancelled call is still open", "call", c.ask.Name(), "error", err)
	}
}

// showCard keeps the card and tells the watchers when it changed. The event has no argument bytes: who asked knows
// them, and the card itself has them for everybody else who may see them.
func (c *Call) showCard(card *permissionv1.Card) {
	tag := card.GetId() + " " + card.GetEtag() + " " + card.GetState().String()
	shown := c.keepCard(card)
	if tag == c.cardTag {
		return
	}
	c.cardTag = tag
	c.span.Card(card.GetId())
	c.log.append(&gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Card{Card: shown}})
}

func (c *Call) keepCard(card *permissionv1.Card) *permissionv1.Card {
	kept := cloneCard(card)
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	c.card = kept
	return kept
}

// accept says that the call exists. From here on it ends with an outcome.
func (c *Call) accept() {
	c.set.mu.Lock()
	was := c.accepted
	c.accepted = true
	m := c.message(false)
	c.set.mu.Unlock()
	if !was {
		c.log.append(&gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Accepted{Accepted: m}})
	}
}

func (c *Call) learn(tool, conversation string) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	if tool != "" {
		c.canonical = tool
		c.span.Tool(tool)
	}
	if conversation != "" {
		c.conversation = conversation
	}
}

// patience is how long a peer may still be away.
type patience struct {
	now   func() time.Time
	until time.Time
	limit time.Duration
}

func (c *Call) patience() *patience {
	p := &patience{now: c.set.deps.Now, limit: c.set.limits.PeerWait}
	p.renew()
	return p
}

func (p *patience) renew()     { p.until = p.now().Add(p.limit) }
func (p *patience) over() bool { return p.now().After(p.until) }

// backoff is the pause between two tries, doubled each time and spread a little.
type backoff struct{ next, max, min time.Duration }

func (c *Call) backoff() *backoff {
	return &backoff{next: c.set.limits.RetryMin, min: c.set.limits.RetryMin, max: c.set.limits.RetryMax}
}

func (b *backoff) reset() { b.next = b.min }

func (b *backoff) wait(ctx context.Context) error {
	d := b.next/2 + time.Duration(rand.Int64N(int64(b.next/2)+1))
	b.next = min(2*b.next, b.max)
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrStopping, ctx.Err())
	}
}
