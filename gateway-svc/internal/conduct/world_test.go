package conduct

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/ids"
)

// fault is what a peer does to one request.
type fault int

// Faults. What does not apply to a peer counts as none.
const (
	none       fault = iota
	lost             // the request never arrives
	answerLost       // it is carried out, and the answer is lost
	brokeEarly       // executor: the stream breaks before the first event, the execution goes on
	brokeLate        // executor: the stream breaks after started, the execution goes on
	diedEarly        // executor: it dies before the claim
	diedLate         // executor: it dies after the claim, and comes back later
	expired          // executor: the writ waited for too long
	refusing         // executor: it does not accept the writ
	queued           // executor: the stream breaks, and the request is taken up much later
	unsealed         // executor: its outcome comes without the receipt that it has
	faults
)

// Times of the world.
const (
	runTime      = 3 * time.Second
	restartTime  = 5 * time.Second
	writLifetime = 60 * time.Second
)

// world is all peers of a conductor in memory, with scripted faults: the n-th request to a peer meets its n-th fault.
type world struct {
	mu      sync.Mutex
	wg      sync.WaitGroup
	scripts map[string][]fault
	effect  bool          // the tool's class
	card    string        // "", "approve", "deny": whether and how a person is asked
	decide  time.Duration // when the person answers
	expiry  map[string]time.Time

	cards     map[Key]*permissionv1.Card
	changed   chan struct{}
	cancelled map[Key]bool
	claims    map[Key]*Claim
	records   map[Key]Recorded
	refusals  map[string]bool
	runs      map[Key]*run
	down      time.Time // until then the executor does not answer
	ran       map[Key]int
	told      map[Key]bool // the conductor knows of a durable claim
	wrong     []string
}

// run is one execution at the executor.
type run struct {
	events  []*commonv1.ExecutionEvent
	changed chan struct{}
	stop    chan struct{}
	stopped bool
	over    bool
	dead    bool
}

func newWorld() *world {
	return &world{
		scripts: map[string][]fault{}, effect: true, expiry: map[string]time.Time{}, cards: map[Key]*permissionv1.Card{},
		changed: make(chan struct{}), cancelled: map[Key]bool{}, claims: map[Key]*Claim{}, records: map[Key]Recorded{},
		refusals: map[string]bool{}, runs: map[Key]*run{}, ran: map[Key]int{}, told: map[Key]bool{},
	}
}

func (w *world) set(l Limits) *Set {
	return NewSet(Deps{
		Permission: w, Executors: map[string]Executor{"exec": w}, Record: w, Turns: w, Tracer: noTracer{}, Status: w.status,
		ReadWrit: w.readWrit, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}, l)
}

func limits() Limits {
	return Limits{
		Open: 100, PerPrincipal: 100, Events: 100, EventBytes: 1 << 20, AllBytes: 8 << 20, Ended: 10, EndedBytes: 1 << 20,
		EndedFor: 5 * time.Minute, Presentings: 3, PeerWait: 2 * time.Minute, Skew: 5 * time.Second, RetryMin: 25 * time.Millisecond, RetryMax: 2 * time.Second,
	}
}

func alice() *commonv1.Principal {
	return &commonv1.Principal{Id: "alice", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"}
}

func ask(call string) Ask {
	return Ask{
		Key: Key{"default", "t_1", call}, Principal: alice(), Tool: "mcp.fs.write_file", Arguments: []byte(`{"a":1}`), Given: true,
	}
}

var errAway = errors.New("connection refused")

func away(peer string) error { return &PeerError{Peer: peer, Kind: Away, Err: errAway} }

func (w *world) next(point string) fault {
	script := w.scripts[point]
	if len(script) == 0 {
		return none
	}
	w.scripts[point] = script[1:]
	return script[0]
}

func (w *world) wake() { close(w.changed); w.changed = make(chan struct{}) }

func (w *world) Authorize(_ context.Context, a Ask) (*permissionv1.AuthorizeResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.next("authorize")
	if f == lost {
		return nil, away("permission")
	}
	answer := w.decision(a)
	if f == answerLost {
		return nil, away("permission")
	}
	return answer, nil
}

func (w *world) decision(a Ask) *permissionv1.AuthorizeResponse {
	denied := func(reason string, stop bool) *permissionv1.AuthorizeResponse {
		state := commonv1.OutcomeState_OUTCOME_STATE_DENIED
		if stop {
			state = commonv1.OutcomeState_OUTCOME_STATE_CANCELLED
		}
		r := w.records[a.Key]
		if r.Receipt == "" {
			r = w.record(a.Key, &commonv1.Outcome{State: state, Status: status(reason)})
		}
		return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Denied{
			Denied: &permissionv1.Denied{Status: status(reason), Receipt: r.Receipt, Cancelled: stop},
		}}
	}
	if w.cancelled[a.Key] && w.claims[a.Key] == nil || w.records[a.Key].Outcome.GetState() == commonv1.OutcomeState_OUTCOME_STATE_CANCELLED {
		return denied("CALL_CANCELLED", true)
	}
	if w.card != "" {
		c := w.askCard(a)
		switch c.GetState() {
		case permissionv1.CardState_CARD_STATE_PENDING:
			return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Pending{Pending: &permissionv1.Pending{Card: c}}}
		case permissionv1.CardState_CARD_STATE_DENIED:
			return denied("CARD_DENIED", false)
		}
	}
	writ := ids.New("w_", rand.Reader)
	w.expiry[writ] = time.Now().Add(writLifetime)
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Allowed{
		Allowed: &permissionv1.Allowed{Writ: writ, ExpireTime: timestamppb.New(w.expiry[writ]), Executor: "exec", Why: "because"},
	}}
}

func (w *world) askCard(a Ask) *permissionv1.Card {
	if c := w.cards[a.Key]; c != nil {
		return c
	}
	c := &permissionv1.Card{
		Id: ids.New("k_", rand.Reader), Etag: "1", State: permissionv1.CardState_CARD_STATE_PENDING, Turn: a.Turn, Call: a.Call,
		Principal: a.Principal, Tool: &commonv1.ToolIdentity{Tool: a.Tool}, Arguments: a.Arguments, AskTime: timestamppb.Now(),
	}
	w.cards[a.Key] = c
	answer, decide := w.card, w.decide
	w.wg.Go(func() {
		time.Sleep(decide)
		state := permissionv1.CardState_CARD_STATE_APPROVED
		if answer == "deny" {
			state = permissionv1.CardState_CARD_STATE_DENIED
		}
		w.decideCard(a.Key, state)
	})
	return c
}

func (w *world) decideCard(k Key, state permissionv1.CardState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.cards[k]
	if c == nil || c.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
		return
	}
	w.cards[k] = &permissionv1.Card{
		Id: c.GetId(), Etag: "2", State: state, Turn: c.GetTurn(), Call: c.GetCall(), Principal: c.GetPrincipal(), Tool: c.GetTool(),
		Arguments: c.GetArguments(), AskTime: c.GetAskTime(), DecideTime: timestamppb.Now(),
	}
	w.wake()
}

func (w *world) WatchDecision(ctx context.Context, a Ask, each func(*permissionv1.Card)) error {
	for first := true; ; first = false {
		w.mu.Lock()
		f, c, changed := none, w.cards[a.Key], w.changed
		if first {
			f = w.next("watch")
		}
		w.mu.Unlock()
		if f == lost || c == nil {
			return away("permission")
		}
		each(c)
		if f != none {
			return away("permission")
		}
		if c.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) CancelCards(_ context.Context, a Ask, _ string) error {
	w.mu.Lock()
	f := w.next("cancelCards")
	if f == lost {
		w.mu.Unlock()
		return away("permission")
	}
	w.cancelled[a.Key] = true
	w.mu.Unlock()
	w.decideCard(a.Key, permissionv1.CardState_CARD_STATE_CANCELLED)
	return nil
}

func (w *world) Execute(ctx context.Context, a Ask, writ string, each func(*commonv1.ExecutionEvent)) error {
	w.mu.Lock()
	f := w.next("execute")
	if w.told[a.Key] {
		w.wrong = append(w.wrong, "presented although its claim was known: "+a.Call)
	}
	if f == lost || time.Now().Before(w.down) {
		w.mu.Unlock()
		return away("exec")
	}
	r := w.begin(a, writ, f)
	w.mu.Unlock()
	if f == brokeEarly || f == diedEarly || f == diedLate || f == queued {
		return away("exec")
	}
	return w.follow(ctx, r, 0, f == brokeLate, each)
}

// begin starts an execution that lives on without its caller.
func (w *world) begin(a Ask, writ string, f fault) *run {
	r := &run{changed: make(chan struct{}), stop: make(chan struct{})}
	if old := w.runs[a.Key]; (old == nil || old.over) && f != queued {
		w.runs[a.Key] = r // a second request for what runs does not take its place
	}
	w.wg.Go(func() { w.execute(a, r, writ, f) })
	return r
}

func (w *world) execute(a Ask, r *run, writ string, f fault) {
	wait := 10 * time.Millisecond
	if f == queued {
		wait = 30 * time.Second
	}
	time.Sleep(wait)
	w.mu.Lock()
	refuse := func(reason, why string) {
		id := ids.New("r_", rand.Reader)
		w.refusals[id] = true
		w.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Outcome{Outcome: &commonv1.Outcome{
			State: commonv1.OutcomeState_OUTCOME_STATE_REFUSED, Status: status(reason, "writ_reason", why), Receipt: id,
		}}})
		w.mu.Unlock()
	}
	claim := w.claims[a.Key]
	switch {
	case f == diedEarly:
		w.die(a.Key, r)
		w.mu.Unlock()
		return
	case f == refusing:
		refuse("WRIT_REFUSED", "SCOPES")
		return
	case f == expired || time.Now().After(w.expiry[writ].Add(limits().Skew)):
		refuse("WRIT_REFUSED", "EXPIRED")
		return
	case claim != nil && (claim.Sealed || claim.Durable):
		refuse("CLAIM_TAKEN", "")
		return
	}
	w.claims[a.Key] = &Claim{Durable: w.effect, Tool: a.Tool, Executor: "exec"}
	if f == diedLate {
		w.die(a.Key, r)
		w.mu.Unlock()
		return
	}
	if f == queued {
		w.runs[a.Key] = r
	}
	w.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Started{Started: &commonv1.ExecutionStarted{}}})
	w.ran[a.Key]++
	w.mu.Unlock()
	w.work(a, r, f)
}

// work is the effect, its progress and the receipt.
func (w *world) work(a Ask, r *run, f fault) {
	o := &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, Result: []byte(`{"content":[]}`)}
	for range 3 {
		select {
		case <-time.After(runTime / 3):
		case <-r.stop:
			o = &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, Status: status("CANCELLED")}
		}
		w.mu.Lock()
		w.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Progress{Progress: &commonv1.Progress{}}})
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.record(a.Key, o).Outcome
	if f == unsealed {
		told = &commonv1.Outcome{State: told.GetState(), Result: told.GetResult(), Status: told.GetStatus()}
	}
	w.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Outcome{Outcome: told}})
}

// die forgets the execution; after the restart an open durable claim is sealed as UNKNOWN.
func (w *world) die(k Key, r *run) {
	w.down = time.Now().Add(restartTime)
	r.dead = true
	close(r.changed)
	r.changed = make(chan struct{})
	if w.runs[k] == r {
		delete(w.runs, k)
	}
	w.wg.Go(func() {
		time.Sleep(restartTime + time.Second) // it answers before it has looked at its claims
		w.mu.Lock()
		defer w.mu.Unlock()
		if c := w.claims[k]; c != nil && c.Durable && !c.Sealed && w.runs[k] == nil {
			w.record(k, &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, Status: status("EXECUTOR_DIED")})
		}
	})
}

func (w *world) emit(r *run, e *commonv1.ExecutionEvent) {
	e.Sequence = int64(len(r.events)) + 1
	r.events = append(r.events, e)
	r.over = r.over || e.GetOutcome() != nil
	close(r.changed)
	r.changed = make(chan struct{})
}

// record seals: first receipt wins.
func (w *world) record(k Key, o *commonv1.Outcome) Recorded {
	if r, ok := w.records[k]; ok {
		return r
	}
	o.Receipt = ids.New("r_", rand.Reader)
	r := Recorded{Receipt: o.GetReceipt(), Tool: "mcp.fs.write_file", Outcome: o, Arguments: []byte(`{"a":1}`), HasArguments: true}
	w.records[k] = r
	w.claims[k] = &Claim{Sealed: true, Durable: true, Tool: r.Tool, Executor: "exec"}
	return r
}

func (w *world) follow(ctx context.Context, r *run, after int64, breaks bool, each func(*commonv1.ExecutionEvent)) error {
	for {
		w.mu.Lock()
		events, changed, dead, over := r.events[min(after, int64(len(r.events))):], r.changed, r.dead, r.over
		w.mu.Unlock()
		if over && len(events) == 0 {
			return nil
		}
		if dead {
			return away("exec")
		}
		for _, e := range events {
			each(e)
			after = e.GetSequence()
			if e.GetOutcome() != nil {
				return nil
			}
			if breaks {
				return away("exec")
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *world) Attach(ctx context.Context, a Ask, after int64, each func(*commonv1.ExecutionEvent)) error {
	w.mu.Lock()
	f, r, down := w.next("attach"), w.runs[a.Key], time.Now().Before(w.down)
	w.mu.Unlock()
	switch {
	case f == lost || down:
		return away("exec")
	case r == nil:
		return &PeerError{Peer: "exec", Kind: Missing, Err: errors.New("no such execution")}
	}
	return w.follow(ctx, r, after, f != none, each)
}

func (w *world) Cancel(_ context.Context, a Ask, _ string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next("cancel") == lost || time.Now().Before(w.down) {
		return false, away("exec")
	}
	r := w.runs[a.Key]
	if r == nil || r.over {
		return false, nil
	}
	if !r.stopped {
		r.stopped = true
		close(r.stop)
	}
	return true, nil
}
