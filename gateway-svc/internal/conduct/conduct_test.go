package conduct

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
)

// seen is what one watcher got.
type seen struct {
	events []*gatewayv1.CallEvent
	err    error
}

func (s seen) outcome() *commonv1.Outcome {
	if len(s.events) == 0 {
		return nil
	}
	return s.events[len(s.events)-1].GetOutcome()
}

func watch(ctx context.Context, c *Call, after int64) seen {
	var s seen
	s.err = c.Watch(ctx, after, func(e *gatewayv1.CallEvent) error { s.events = append(s.events, e); return nil })
	return s
}

// problems holds what a watcher saw against what every watcher may rely on: events in order, one outcome and nothing
// after it, or an error and no outcome.
func (s seen) problems() (found []string) {
	last := int64(0)
	for i, e := range s.events {
		if e.GetSequence() <= last {
			found = append(found, "sequence does not grow")
		}
		last = e.GetSequence()
		if e.GetOutcome() != nil && i != len(s.events)-1 {
			found = append(found, "something follows the outcome")
		}
	}
	switch o := s.outcome(); {
	case s.err == nil && o == nil:
		found = append(found, "the stream ended without an outcome")
	case s.err != nil && o != nil:
		found = append(found, "an error follows the outcome")
	case o != nil && o.GetReceipt() == "":
		found = append(found, "an outcome without a receipt")
	}
	return found
}

func scripts(t *rapid.T, w *world) {
	kinds := []fault{none, none, none, lost, answerLost}
	for _, point := range []string{"authorize", "watch", "cancelCards", "attach", "cancel", "claim", "recorded", "seal"} {
		w.scripts[point] = rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 6).Draw(t, point)
	}
	w.scripts["execute"] = rapid.SliceOfN(rapid.Map(rapid.IntRange(0, int(faults)-1), func(n int) fault { return fault(n) }), 0, 4).Draw(t, "execute")
}

// Whatever the peers do: every watcher sees one and the same outcome exactly once, with its receipt, or an error and no
// outcome; the effect happens at most once; a call whose claim the conductor knows is never presented again; and what
// the outcome says is what happened (ruling 9, R49, R109).
func TestConductorAgainstRandomFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		w.effect = rapid.Bool().Draw(rt, "effect")
		w.card = rapid.SampledFrom([]string{"", "", "approve", "deny"}).Draw(rt, "card")
		w.decide = time.Duration(rapid.IntRange(0, 600).Draw(rt, "decide")) * time.Second
		cancel := time.Duration(rapid.IntRange(-4000, 8000).Draw(rt, "cancel")) * time.Millisecond
		scripts(rt, w)
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = liveThrough(w, cancel) })
		if len(wrong) > 0 {
			rt.Fatalf("%q", wrong)
		}
	})
}

func liveThrough(w *world, cancel time.Duration) (wrong []string) {
	ctx := context.Background()
	w.changed = make(chan struct{}) // of this bubble
	s := w.set(limits())
	results := make(chan seen, 3)
	call, err := s.Start(ctx, ask("c"))
	if err != nil {
		return []string{err.Error()}
	}
	go func() { results <- watch(ctx, call, 0) }()
	go func() { // a second request with the same id, later
		time.Sleep(time.Second)
		if call.View(false).Call.GetOutcome().GetState() == commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
			results <- seen{err: errors.New("that would be a new attempt")}
			return
		}
		again, err := s.Start(ctx, ask("c"))
		if err != nil {
			results <- seen{err: err}
			return
		}
		results <- watch(ctx, again, 0)
	}()
	go func() { // whoever stops it; its own watch begins in the middle
		time.Sleep(max(cancel, 0))
		if c, ok := s.Get(ask("c").Key, alice()); ok && cancel >= 0 {
			if err := c.Cancel(ctx, "no longer wanted"); err != nil && kindOf(err) != Away {
				wrong = append(wrong, "cancel: "+err.Error())
			}
		}
		results <- seen{err: errors.New("only the stopper")}
	}()
	all := []seen{<-results, <-results, <-results}
	if err := s.Close(ctx); err != nil {
		wrong = append(wrong, err.Error())
	}
	w.wg.Wait()
	wrong = append(wrong, w.wrong...)
	for _, r := range all {
		if r.err != nil && len(r.events) == 0 {
			continue // the stopper, or a call that never came to be
		}
		wrong = append(wrong, r.problems()...)
		wrong = append(wrong, w.judge(r.outcome())...)
	}
	if n := w.ran[ask("c").Key]; n > 1 && w.effect {
		wrong = append(wrong, fmt.Sprintf("the effect happened %d times", n))
	}
	return wrong
}

// judge compares an outcome with what happened.
func (w *world) judge(o *commonv1.Outcome) []string {
	k := ask("c").Key
	rec := w.records[k]
	switch {
	case o == nil:
		return nil
	case o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_REFUSED:
		if !w.refusals[o.GetReceipt()] {
			return []string{"a refusal without its receipt"}
		}
		if w.ran[k] > 0 && w.effect {
			return []string{"refused, and it ran"}
		}
		return nil
	case rec.Receipt != o.GetReceipt() || rec.Outcome.GetState() != o.GetState():
		return []string{"the record says " + rec.Outcome.GetState().String() + ", the outcome " + o.GetState().String()}
	case o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_DENIED && w.ran[k] > 0:
		return []string{"denied, and it ran"}
	}
	return nil
}

// run is one call in a world that a test prepares.
func conductOne(t *testing.T, prepare func(*world), check func(*testing.T, *world, *Set, seen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		prepare(w)
		s := w.set(limits())
		c, err := s.Start(t.Context(), ask("c"))
		if err != nil {
			t.Fatal(err)
		}
		got := watch(t.Context(), c, 0)
		check(t, w, s, got)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wg.Wait()
	})
}

func states(s seen) (words []string) {
	for _, e := range s.events {
		switch ev := e.GetEvent().(type) {
		case *gatewayv1.CallEvent_Accepted:
			words = append(words, "accepted")
		case *gatewayv1.CallEvent_Card:
			words = append(words, "card "+ev.Card.GetState().String()[len("CARD_STATE_"):])
		case *gatewayv1.CallEvent_Authorized:
			words = append(words, "authorized")
		case *gatewayv1.CallEvent_Execution:
			if ev.Execution.GetStarted() != nil {
				words = append(words, "started")
			}
		case *gatewayv1.CallEvent_Outcome:
			words = append(words, ev.Outcome.GetState().String()[len("OUTCOME_STATE_"):])
		}
	}
	return words
}

// The flow of design.md "One call".
func TestOneCallAsDrawn(t *testing.T) {
	conductOne(t, func(w *world) { w.card, w.decide = "approve", 7*24*time.Hour }, func(t *testing.T, _ *world, _ *Set, got seen) {
		want := []string{"accepted", "card PENDING", "card APPROVED", "authorized", "started", "COMPLETED"}
		if !slices.Equal(states(got), want) || got.err != nil {
			t.Errorf("%v %v", states(got), got.err)
		}
	})
}

// What becomes of one executor fault, as design.md "What survives what" has it.
func TestExecutorFaults(t *testing.T) {
	for _, tc := range []struct {
		name   string
		effect bool
		script []fault
		want   commonv1.OutcomeState
		ran    int
	}{
		{"never arrived: presented again", true, []fault{lost}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"broke before an event: found again", true, []fault{brokeEarly}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"broke after started: attached", true, []fault{brokeLate}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"died before the claim: presented again", true, []fault{diedEarly}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"died after the claim: UNKNOWN, and nothing runs again", true, []fault{diedLate}, commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, 0},
		{"a read whose executor died may run again", false, []fault{diedLate}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"waited too long in a queue: authorized again", true, []fault{expired}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"a refusal is final", true, []fault{refusing}, commonv1.OutcomeState_OUTCOME_STATE_REFUSED, 0},
		{"an outcome without its receipt is none: the record is asked", true, []fault{unsealed}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"taken up long after its stream broke: it still runs once", true, []fault{queued, queued}, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, 1},
		{"each time too long: it ends refused, when no writ lives", true, []fault{expired, expired, expired}, commonv1.OutcomeState_OUTCOME_STATE_REFUSED, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conductOne(t, func(w *world) { w.effect = tc.effect; w.scripts["execute"] = tc.script }, func(t *testing.T, w *world, _ *Set, got seen) {
				if got.outcome().GetState() != tc.want || got.err != nil || len(got.problems()) > 0 {
					t.Errorf("%v %v %v", states(got), got.err, got.problems())
				}
				if n := w.ran[ask("c").Key]; n != tc.ran {
					t.Errorf("it ran %d times", n)
				}
			})
		})
	}
}

// An executor that does not come back leaves the call open: no outcome is made up, and who asks later finds the record.
func TestExecutorStaysAwayAfterTheClaim(t *testing.T) {
	conductOne(t, func(w *world) {
		w.scripts["execute"] = []fault{brokeLate}
		w.scripts["attach"] = slices.Repeat([]fault{lost}, 10_000)
		w.scripts["claim"] = append([]fault{none}, slices.Repeat([]fault{lost}, 10_000)...)
	}, func(t *testing.T, _ *world, s *Set, got seen) {
		var away *UnavailableError
		if !errors.As(got.err, &away) || got.outcome() != nil {
			t.Errorf("%v %v", states(got), got.err)
		}
		if _, ok := s.Get(ask("c").Key, alice()); ok {
			t.Error("it is still held, so that nobody would look at the record")
		}
	})
}

// Before the call exists a peer's failure is the caller's to see, at once (design.md, CallTool).
func TestNothingExistsBeforeTheFirstAnswer(t *testing.T) {
	conductOne(t, func(w *world) { w.scripts["authorize"] = []fault{lost} }, func(t *testing.T, w *world, s *Set, got seen) {
		var peer *PeerError
		if !errors.As(got.err, &peer) || len(got.events) != 0 {
			t.Errorf("%v %v", states(got), got.err)
		}
		again, err := s.Start(t.Context(), ask("c"))
		if err != nil {
			t.Fatal(err)
		}
		if got := watch(t.Context(), again, 0); got.outcome().GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED {
			t.Errorf("the same id again: %v %v", states(got), got.err)
		}
	})
}

// The same call again attaches; another tool or other bytes are CALL_CHANGED, running or ended or only recorded.
func TestSameCallAgain(t *testing.T) {
	conductOne(t, func(*world) {}, func(t *testing.T, w *world, s *Set, got seen) {
		fresh := w.set(limits()) // a gateway that knows nothing
		defer func() { _ = fresh.Close(context.Background()) }()
		for name, set := range map[string]*Set{"in memory": s, "after a restart": fresh} {
			same := ask("c")
			same.Tool = "fs__write_file" // the alias
			c, err := set.Start(t.Context(), same)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if again := watch(t.Context(), c, 0); again.outcome().GetReceipt() != got.outcome().GetReceipt() {
				t.Errorf("%s: %v %v", name, states(again), again.err)
			}
			for _, change := range []func(*Ask){
				func(a *Ask) { a.Arguments = []byte(`{"a":2}`) },
				func(a *Ask) { a.Tool = "mcp.fs.read_file" },
			} {
				other := ask("c")
				change(&other)
				c, err := set.Start(t.Context(), other)
				if err == nil {
					err = watch(t.Context(), c, 0).err
				}
				if !errors.Is(err, ErrChanged) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if w.ran[ask("c").Key] != 1 {
			t.Errorf("it ran %d times", w.ran[ask("c").Key])
		}
	})
}

// Limits are held, and a call that waits for a person does not count as running.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.card, w.decide = "approve", time.Hour
		l := limits()
		l.Open, l.PerPrincipal = 3, 1
		s := w.set(l)
		for _, call := range []string{"a", "b", "c"} {
			if _, err := s.Start(t.Context(), ask(call)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // its card is asked
		}
		var many *TooManyError
		if _, err := s.Start(t.Context(), ask("d")); !errors.As(err, &many) || many.Limit != "open_calls_max" {
			t.Errorf("%v", err)
		}
		w.mu.Lock()
		w.card = ""
		w.mu.Unlock()
		time.Sleep(2 * time.Hour)
		if _, err := s.Start(t.Context(), ask("e")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Start(t.Context(), ask("f")); !errors.As(err, &many) || many.Limit != "running_calls_max_per_principal" {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wg.Wait()
	})
}
