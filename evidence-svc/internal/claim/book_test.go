package claim

import (
	"fmt"
	"testing"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
)

func entry(call string, id int64, at time.Time) *Entry {
	return &Entry{Key: Key{"n", call}, ID: id, Executor: "exec", Claimed: at, Claims: &writtoken.Claims{}}
}

func TestReservationsAreBoundedAndDurableClaimsAreNot(t *testing.T) {
	b := NewBook(3, time.Hour)
	now := time.Now()
	b.Add(entry("durable", 1, now))
	for i := range 10 {
		b.Add(entry(fmt.Sprint(i), 0, now))
	}
	if b.Get(Key{"n", "6"}) != nil || b.Get(Key{"n", "7"}) == nil || b.Get(Key{"n", "durable"}) == nil {
		t.Error("not the three newest reservations and the durable claim are kept")
	}
	b.Prune(now.Add(time.Hour))
	if b.Get(Key{"n", "9"}) != nil || b.Get(Key{"n", "durable"}) == nil {
		t.Error("age is not what decides")
	}
	b.Add(entry("durable", 0, now))
	if !b.Get(Key{"n", "durable"}).Durable() {
		t.Error("a reservation took the place of a durable claim")
	}
	b.Remove(Key{"n", "durable"})
	if b.Durable("n") != 0 || len(b.durable) != 0 {
		t.Error("a removed claim is still counted")
	}
}

func TestATokenIsGoodForItsClaimOnly(t *testing.T) {
	tokens := NewTokens(make([]byte, 32))
	good := tokens.Make("n", "call", "exec", "w")
	if !tokens.Valid(good, "n", "call", "exec", "w") {
		t.Error("its own")
	}
	for _, other := range [][4]string{{"m", "call", "exec", "w"}, {"n", "other", "exec", "w"}, {"n", "call", "mcp-host", "w"}, {"n", "call", "exec", "w2"}, {"nc", "all", "exec", "w"}} {
		if tokens.Valid(good, other[0], other[1], other[2], other[3]) {
			t.Errorf("valid for %v", other)
		}
	}
	if NewTokens([]byte("another secret of 32 bytes......")).Valid(good, "n", "call", "exec", "w") {
		t.Error("valid under another secret")
	}
}
