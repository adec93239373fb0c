package conduct

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

func accepted() *gatewayv1.CallEvent {
	return &gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Accepted{Accepted: &gatewayv1.Call{Name: "turns/t/calls/c"}}}
}

func card(etag string) *gatewayv1.CallEvent {
	return &gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Card{Card: &permissionv1.Card{Etag: etag}}}
}

func execution(e *commonv1.ExecutionEvent) *gatewayv1.CallEvent {
	return &gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Execution{Execution: e}}
}

func output(n int) *gatewayv1.CallEvent {
	return execution(&commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Output{Output: &commonv1.Output{Data: []byte(strings.Repeat("x", n))}}})
}

func started() *gatewayv1.CallEvent {
	return execution(&commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Started{Started: &commonv1.ExecutionStarted{}}})
}

func outcome() *gatewayv1.CallEvent {
	return &gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Outcome{Outcome: &commonv1.Outcome{Receipt: "r_1"}}}
}

// However much is said in a call: its log stays within its limits as long as there is progress or output to give up, and
// what says how the call stands is never given up.
func TestLogGivesUpOutputFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := &budget{max: 1 << 30}
		l := newLog(0, Limits{Events: rapid.IntRange(8, 20).Draw(t, "events"), EventBytes: 4096}, shared, time.Now)
		l.append(accepted())
		l.append(card("1"))
		l.append(started())
		n := rapid.IntRange(0, 200).Draw(t, "n")
		for range n {
			l.append(output(rapid.IntRange(0, 1000).Draw(t, "size")))
		}
		l.close(outcome(), nil)
		events, _, closed, err := l.read(0)
		if !closed || err != nil || len(events) > l.maxEvents || l.bytes > 4096 {
			t.Fatalf("%d events, %d bytes", len(events), l.bytes)
		}
		if events[0].GetAccepted() == nil || events[1].GetCard() == nil || events[2].GetExecution().GetStarted() == nil || events[len(events)-1].GetOutcome() == nil {
			t.Fatalf("what says how it stands is gone: %v", events)
		}
		if last := events[len(events)-1].GetSequence(); last != int64(n)+4 {
			t.Fatalf("the last number is %d of %d", last, n+4)
		}
		l.release()
		if shared.used.Load() != 0 {
			t.Fatalf("%d bytes are still counted", shared.used.Load())
		}
	})
}

// A call whose card changes without end keeps the newest state.
func TestLogGivesUpReplacedCards(t *testing.T) {
	l := newLog(0, Limits{Events: 4, EventBytes: 1 << 20}, &budget{max: 1 << 30}, time.Now)
	l.append(accepted())
	for range 100 {
		l.append(card("x"))
	}
	l.append(card("newest"))
	events, _, _, _ := l.read(0)
	if len(events) != 4 || events[3].GetCard().GetEtag() != "newest" || events[0].GetAccepted() == nil {
		t.Errorf("%v", events)
	}
}

// When all calls together hold too much, each keeps little; none loses its outcome.
func TestLogsShareABudget(t *testing.T) {
	shared := &budget{max: 1 << 20}
	var logs []*eventLog
	for range 8 {
		l := newLog(0, Limits{Events: 1000, EventBytes: 4 << 20}, shared, time.Now)
		for range 100 {
			l.append(output(8 << 10))
		}
		l.close(outcome(), nil)
		logs = append(logs, l)
	}
	if used := shared.used.Load(); used > 2<<20 {
		t.Errorf("%d bytes", used)
	}
	for _, l := range logs {
		if events, _, _, _ := l.read(0); events[len(events)-1].GetOutcome() == nil {
			t.Error("an outcome is gone")
		}
	}
}

// A cursor of another life means everything; the outcome is sent to whoever asks again.
func TestCursors(t *testing.T) {
	l := newLog(0, Limits{Events: 10, EventBytes: 1 << 20}, &budget{max: 1 << 30}, time.Now)
	l.append(accepted())
	l.append(started())
	l.close(outcome(), nil)
	for after, want := range map[int64]int{0: 3, 1: 2, 2: 1, 3: 1, 4: 3, 1000: 3} {
		n := 0
		if err := l.watch(context.Background(), after, func(*gatewayv1.CallEvent) error { n++; return nil }); err != nil || n != want {
			t.Errorf("after %d: %d events, %v", after, n, err)
		}
	}
}
