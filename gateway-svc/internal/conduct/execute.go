package conduct

import (
	"context"
	"errors"
	"sync"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

// Reasons of executors that the conductor acts upon, and the metadata of the second.
const (
	reasonClaimTaken  = "CLAIM_TAKEN"
	reasonWritRefused = "WRIT_REFUSED"
	keyWritReason     = "writ_reason"
	writExpired       = "EXPIRED"
)

// present gives the writ to the executor.
func (c *Call) present(ctx context.Context, a *permissionv1.Allowed) step {
	if c.askedToStop() {
		return c.cancelled(ctx)
	}
	ex := c.set.deps.Executors[a.GetExecutor()]
	if ex == nil {
		return c.refuse(ctx, &ExecutorError{Name: a.GetExecutor(), Err: errors.New("no such executor is connected here")})
	}
	if c.presented >= c.set.limits.Presentings {
		return c.lapse(ctx, &ExecutorError{Name: a.GetExecutor(), Err: errors.New("it broke off before the claim each time")}, a.GetExecutor())
	}
	c.presented++
	c.lastSeq, c.begun = 0, false
	before := c.shown // until when an earlier presenting may still be accepted
	c.shown = c.expiry
	c.set.move(c, running)
	c.tellAuthorized(a)
	defer c.set.move(c, authorizing)
	o, err := c.stream(ctx, ex, func(ctx context.Context, each func(*commonv1.ExecutionEvent)) error {
		return ex.Execute(ctx, c.ask, a.GetWrit(), each)
	})
	if ctx.Err() != nil && o == nil {
		return step{err: ctx.Err()}
	}
	if o != nil {
		if end, final := c.settle(ctx, o); final {
			return c.outlast(ctx, end, before)
		}
		return c.resolve(ctx, a.GetExecutor())
	}
	if err != nil && !c.begun && kindOf(err) != Away && kindOf(err) != Taken {
		if _, cerr := c.set.deps.Record.Claim(ctx, c.ask.Key); cerr != nil && kindOf(cerr) == Missing {
			return c.refuse(ctx, err)
		}
	}
	return c.resolve(ctx, a.GetExecutor())
}

// outlast keeps a refusal back for as long as an earlier presenting, whose stream broke, may still be accepted: REFUSED
// says that nothing ran.
func (c *Call) outlast(ctx context.Context, end step, before time.Time) step {
	if before.IsZero() || end.outcome.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
		return end
	}
	for pause, patience := c.backoff(), c.patience(); ; {
		free, away, known := c.look(ctx)
		switch {
		case known.over():
			return known
		case free && c.set.deps.Now().After(before.Add(c.set.limits.Skew)):
			return end
		case away != nil && patience.over():
			return step{err: &UnavailableError{Peer: "evidence", Err: away}}
		case away == nil && !free && patience.over():
			return step{err: &UnavailableError{Peer: c.authorized, Err: errors.New("the call is claimed and its executor has not said how it ended")}}
		}
		if err := pause.wait(ctx); err != nil {
			return step{err: err}
		}
	}
}

func (c *Call) tellAuthorized(a *permissionv1.Allowed) {
	if c.authorized == a.GetExecutor() {
		return
	}
	c.authorized = a.GetExecutor()
	c.log.append(&gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Authorized{Authorized: &gatewayv1.Authorized{
		Why: a.GetWhy(), Card: a.GetCard(), Executor: a.GetExecutor(),
	}}})
}

// settle judges an executor's outcome. It is not final when somebody else claimed the call, or when it comes without
// the receipt that makes it true.
func (c *Call) settle(ctx context.Context, o *commonv1.Outcome) (end step, final bool) {
	refused := o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_REFUSED
	switch {
	case refused && reasonOf(o) == reasonClaimTaken:
		return again, false
	case refused && reasonOf(o) == reasonWritRefused && infoOf(o).GetMetadata()[keyWritReason] == writExpired:
		return again, true // it waited in a queue for too long: authorized again
	case refused && o.GetReceipt() == "":
		return c.seal(ctx, o), true
	case o.GetReceipt() == "":
		return again, false
	}
	return step{outcome: o}, true
}

// stream reads an execution's events until its outcome or until the stream ends, and asks the executor to stop when
// the call is cancelled meanwhile.
func (c *Call) stream(ctx context.Context, ex Executor, open func(context.Context, func(*commonv1.ExecutionEvent)) error) (*commonv1.Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stopper sync.WaitGroup
	stopper.Go(func() { c.cancelAt(ctx, ex) })
	var outcome *commonv1.Outcome
	err := open(ctx, func(e *commonv1.ExecutionEvent) {
		if e.GetSequence() <= c.lastSeq {
			return
		}
		if o := e.GetOutcome(); o != nil {
			outcome = o // the cursor stays before it: one that is not final may have to be read again
			return
		}
		c.lastSeq = e.GetSequence()
		c.begun = c.begun || e.GetStarted() != nil
		c.log.append(&gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Execution{Execution: e}})
	})
	cancel()
	stopper.Wait()
	return outcome, err
}

// cancelAt asks the executor to stop once the call is cancelled, until it says that it does. An executor that does not
// know the execution yet is asked again: the request to start may still be on its way.
func (c *Call) cancelAt(ctx context.Context, ex Executor) {
	select {
	case <-c.stop:
	case <-ctx.Done():
		return
	}
	for pause := c.backoff(); ; {
		ok, err := ex.Cancel(ctx, c.ask, c.stopReason())
		if err != nil && ctx.Err() == nil {
			c.set.deps.Log.WarnContext(ctx, "the executor could not be asked to stop", "call", c.ask.Name(), "error", err)
		}
		if ok || pause.wait(ctx) != nil {
			return
		}
	}
}

// resolve finds out what became of a call whose stream broke or that somebody else claimed: from the executor as long
// as it knows the execution, else from the record. It comes to nothing when it is certain that the call may be
// presented again.
func (c *Call) resolve(ctx context.Context, executor string) step {
	ex := c.set.deps.Executors[executor]
	pause, patience, told := c.backoff(), c.patience(), false
	for {
		gone, seen, end := c.attach(ctx, ex)
		if end.over() {
			return end
		}
		if seen {
			pause.reset()
			patience.renew()
		}
		free, away, end := c.look(ctx)
		switch {
		case end.over():
			return end
		case free && gone:
			return again
		case patience.over() && free:
			return c.lapse(ctx, &ExecutorError{Name: executor, Err: errors.New("it does not answer")}, executor)
		case patience.over() && away != nil:
			return step{err: &UnavailableError{Peer: "evidence", Err: away}}
		case patience.over():
			return step{err: &UnavailableError{Peer: executor, Err: errors.New("the call is claimed and its executor has not said how it ended")}}
		}
		if !told {
			told = true
			c.log.append(&gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Execution{Execution: &commonv1.ExecutionEvent{
				Event: &commonv1.ExecutionEvent_Waiting{Waiting: &commonv1.ExecutionWaiting{What: "asking what became of the call: " + executor + " and the record"}},
			}}})
		}
		if err := pause.wait(ctx); err != nil {
			return step{err: err}
		}
	}
}

// attach follows the execution for as long as the executor has it. gone: it answers and has none. seen: it had news.
func (c *Call) attach(ctx context.Context, ex Executor) (gone, seen bool, end step) {
	if ex == nil {
		return true, false, again
	}
	before := c.lastSeq
	o, err := c.stream(ctx, ex, func(ctx context.Context, each func(*commonv1.ExecutionEvent)) error {
		return ex.Attach(ctx, c.ask, c.lastSeq, each)
	})
	if o != nil {
		end, final := c.settle(ctx, o)
		// An outcome that is not final, or that asks for a new writ, is the end of what this executor knows.
		if final {
			return true, true, end
		}
		return true, false, again
	}
	if ctx.Err() != nil {
		return false, false, step{err: ctx.Err()}
	}
	return err != nil && kindOf(err) != Away, c.lastSeq > before, again
}

// look asks the record. free: nobody can have begun the effect. away: the record does not answer.
func (c *Call) look(ctx context.Context) (free bool, away error, end step) {
	claim, err := c.set.deps.Record.Claim(ctx, c.ask.Key)
	switch {
	case ctx.Err() != nil:
		return false, nil, step{err: ctx.Err()}
	case err == nil && claim.Sealed:
		end := c.recorded(ctx)
		if end.err != nil && !errors.Is(end.err, ErrChanged) {
			return false, end.err, again
		}
		return false, nil, end
	case err == nil:
		return !claim.Durable && !c.effect, nil, again // a read may be claimed again
	case kindOf(err) == Missing:
		return !(c.begun && c.effect), nil, again
	}
	return false, err, again
}

// lapse ends a call that was never claimed, as soon as nobody can claim it any more: when its last writ has expired.
func (c *Call) lapse(ctx context.Context, cause error, peer string) step {
	if d := c.expiry.Add(c.set.limits.Skew).Sub(c.set.deps.Now()); c.writ != "" && d > 0 {
		if err := sleep(ctx, d); err != nil {
			return step{err: err}
		}
	}
	free, away, end := c.look(ctx)
	switch {
	case end.over():
		return end
	case free:
		return c.refuse(ctx, cause)
	case away != nil:
		return step{err: &UnavailableError{Peer: "evidence", Err: away}}
	}
	return step{err: &UnavailableError{Peer: peer, Err: cause}}
}
