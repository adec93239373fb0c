package conduct

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

// denied is permission's no, which it sealed itself.
func (c *Call) denied(ctx context.Context, d *permissionv1.Denied) step {
	state := commonv1.OutcomeState_OUTCOME_STATE_DENIED
	switch {
	case d.GetStale():
		state = commonv1.OutcomeState_OUTCOME_STATE_STALE
	case d.GetCancelled():
		state = commonv1.OutcomeState_OUTCOME_STATE_CANCELLED
	}
	o := &commonv1.Outcome{State: state, Status: d.GetStatus(), Receipt: d.GetReceipt()}
	if o.GetReceipt() == "" {
		return c.seal(ctx, o) // a permission service that leaves the record to others
	}
	return step{outcome: o}
}

// refuse ends the call in the gateway itself: nothing ran.
func (c *Call) refuse(ctx context.Context, cause error) step {
	return c.seal(ctx, &commonv1.Outcome{
		State: commonv1.OutcomeState_OUTCOME_STATE_REFUSED, Status: c.set.deps.Status(cause),
	})
}

// cancelled ends the call before it was presented. The receipt takes the claim, so that nothing can run any more.
func (c *Call) cancelled(ctx context.Context) step {
	return c.seal(ctx, &commonv1.Outcome{
		State:  commonv1.OutcomeState_OUTCOME_STATE_CANCELLED,
		Status: c.set.deps.Status(&CancelledError{Name: c.ask.Name(), Reason: c.stopReason()}),
	})
}

// seal has an ending of the gateway's recorded. Without a receipt there is no outcome.
func (c *Call) seal(ctx context.Context, o *commonv1.Outcome) step {
	pause, patience := c.backoff(), c.patience()
	ending := Ending{Ask: c.ask, Canonical: c.canonical, Writ: c.writ, Card: c.card, TraceID: c.traceID, Outcome: o}
	for {
		receipt, err := c.set.deps.Record.Seal(ctx, ending)
		switch {
		case err == nil:
			sealed := proto.CloneOf(o)
			sealed.Receipt = receipt
			return step{outcome: sealed}
		case ctx.Err() != nil:
			return step{err: ctx.Err()}
		case kindOf(err) == Taken:
			return c.overtaken(ctx, err)
		case kindOf(err) != Away || patience.over():
			return step{err: &UnavailableError{Peer: "evidence", Err: err}}
		}
		if err := pause.wait(ctx); err != nil {
			return step{err: err}
		}
	}
}

// overtaken is an ending that came too late: something else claimed the call, and the record says how it ends.
func (c *Call) overtaken(ctx context.Context, taken error) step {
	pause, patience := c.backoff(), c.patience()
	for {
		_, _, end := c.look(ctx)
		if end.over() {
			return end
		}
		if patience.over() {
			return step{err: &UnavailableError{Peer: "evidence", Err: taken}}
		}
		if err := pause.wait(ctx); err != nil {
			return step{err: err}
		}
	}
}

func infoOf(o *commonv1.Outcome) *errdetails.ErrorInfo {
	for _, d := range o.GetStatus().GetDetails() {
		info := &errdetails.ErrorInfo{}
		if d.MessageIs(info) && d.UnmarshalTo(info) == nil {
			return info
		}
	}
	return nil
}

func reasonOf(o *commonv1.Outcome) string { return infoOf(o).GetReason() }

// cloneCard is the card as events carry it: without the argument bytes.
func cloneCard(card *permissionv1.Card) *permissionv1.Card {
	if len(card.GetArguments()) == 0 {
		return card
	}
	without := proto.CloneOf(card)
	without.Arguments = nil
	return without
}
