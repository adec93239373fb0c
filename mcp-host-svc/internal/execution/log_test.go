package execution_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/writ-dev/writ/mcp-host-svc/internal/execution"
)

func run(call string) *execution.Run[int64] {
	return &execution.Run[int64]{Key: execution.Key{Namespace: "n", Call: call}, Log: execution.NewLog[int64](2)}
}

func nothing(error) {}

// Two calls of one name, and more than may run, are told apart.
func TestAdmission(t *testing.T) {
	now := time.Unix(0, 0)
	table := execution.NewTable[int64](2, time.Minute, func() time.Time { return now })
	a := run("a")
	for i, step := range []struct {
		r    *execution.Run[int64]
		want execution.Admission
	}{{a, execution.Admitted}, {run("a"), execution.Taken}, {run("b"), execution.Admitted}, {run("c"), execution.Full}} {
		if got := table.Begin(step.r, 2, nothing); got != step.want {
			t.Errorf("step %d: %v, not %v", i, got, step.want)
		}
	}
	table.End(a)
	if got := table.Begin(run("c"), 2, nothing); got != execution.Admitted {
		t.Errorf("after an end: %v", got)
	}
}

// What was claimed stays what is attached to; a later presentation that was only refused changes nothing.
func TestARefusalDoesNotReplaceTheRecord(t *testing.T) {
	now := time.Unix(0, 0)
	table := execution.NewTable[int64](2, time.Minute, func() time.Time { return now })
	ran, refused := run("a"), run("a")
	table.Begin(ran, 9, nothing)
	ran.Claimed = true
	table.End(ran)
	table.Begin(refused, 9, nothing)
	if table.Find(ran.Key) != ran {
		t.Error("a running presentation took the place of the call that ran")
	}
	table.End(refused)
	if table.Find(ran.Key) != ran {
		t.Error("a refused presentation took the place of the call that ran")
	}
	now = now.Add(time.Hour)
	if table.Find(ran.Key) != nil {
		t.Error("an old execution is still kept")
	}
}

func TestCancelReachesOnlyWhatRuns(t *testing.T) {
	table := execution.NewTable[int64](2, time.Minute, time.Now)
	why := errors.New("stop")
	var got error
	a := run("a")
	table.Begin(a, 9, func(err error) { got = err })
	if !table.Cancel(a.Key, why) || !errors.Is(got, why) {
		t.Errorf("cancelled with %v", got)
	}
	table.End(a)
	if table.Cancel(a.Key, why) {
		t.Error("something that ended was cancelled")
	}
}

// Followers see every event from their cursor on, in order; what may be lost is lost when the log is full, and nothing else.
func TestFollowers(t *testing.T) {
	l := execution.NewLog[int64](2)
	for range 4 {
		l.Add(true, func(n int64) int64 { return n })
	}
	l.Add(false, func(n int64) int64 { return n })
	l.End(nil)
	for after, want := range map[int64]int{0: 3, 1: 2, 3: 0, 99: 0, -5: 3} {
		n := 0
		err := l.Follow(context.Background(), after, func(int64) error { n++; return nil })
		if err != nil || n != want {
			t.Errorf("after %d: %d events, not %d (%v)", after, n, want, err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("gone")
	cancel(why)
	if err := execution.NewLog[int64](2).Follow(ctx, 0, func(int64) error { return nil }); !errors.Is(err, why) {
		t.Errorf("a follower that left: %v", err)
	}
}
