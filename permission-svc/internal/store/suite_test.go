package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
	"github.com/writ-dev/writ/permission-svc/internal/preview"
	"github.com/writ-dev/writ/permission-svc/internal/setting"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// engines are what has to pass the suite. Each opens the store of a test, the second time as it was left.
var engines = map[string]func(t *testing.T, dir string) store.Store{
	"sqlite": func(t *testing.T, dir string) store.Store {
		s, err := store.OpenSQLite(t.Context(), filepath.Join(dir, "permission.db"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
}

const (
	pending  = permissionv1.CardState_CARD_STATE_PENDING
	approved = permissionv1.CardState_CARD_STATE_APPROVED
)

var (
	bot    = actor.Actor{ID: "bot", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "n"}
	alice  = actor.Actor{ID: "alice", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN, Namespace: "n", Credential: "c"}
	noCaps = store.Caps{PerTurn: 1 << 40, PerPrincipal: 1 << 40}
	start  = time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
)

// each runs a test on every engine; reopen closes the store and opens it again.
func each(t *testing.T, test func(t *testing.T, s store.Store, reopen func() store.Store)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			t.Cleanup(func() { _ = s.Close() })
			test(t, s, func() store.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir)
				return s
			})
		})
	}
}

func newCard(turn, call string) card.Card {
	return card.Card{Content: card.Content{
		ID: "k_" + turn + "_" + call, Namespace: "n", Turn: turn, Call: call, Principal: bot, Conversation: "talk", Tool: card.Tool{ID: "mcp.fs.w", Fingerprint: "f", ProviderDigest: "p"},
		Preview: preview.Preview{Title: "x", Complete: true, SHA256: "s"}, AskTime: start, Arguments: []byte(`{"n":9007199254740993}`), SHA256: "a", Salt: []byte{1},
		Offers: []card.Offer{{Lifetime: permissionv1.Lifetime_LIFETIME_ONCE}, {Lifetime: permissionv1.Lifetime_LIFETIME_CONVERSATION, Text: "t"}},
	}}
}

func mustCreate(t *testing.T, s store.Store, c card.Card) card.Card {
	t.Helper()
	out, err := s.CreateCard(t.Context(), c, store.CallOf(c, start), noCaps)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func answer(c card.Card, approve bool) store.Answer {
	return store.Answer{Namespace: "n", Card: c.ID, Version: c.Version, Approve: approve, Lifetime: permissionv1.Lifetime_LIFETIME_ONCE, By: alice, At: start.Add(time.Minute), Reason: "r", Check: func(card.Card) error { return nil }}
}

// A card survives with every byte, and there is one per call.
func TestCardsSurvive(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, reopen func() store.Store) {
		made := mustCreate(t, s, newCard("t", "c"))
		twice := newCard("t", "c")
		twice.ID = "k_other"
		if got := mustCreate(t, s, twice); got.ID != made.ID || got.Seq != made.Seq {
			t.Fatalf("%+v", got)
		}
		decided, _, err := s.Decide(t.Context(), answer(made, false))
		if err != nil {
			t.Fatal(err)
		}
		s = reopen()
		got, err := s.Card(t.Context(), "n", made.ID)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", decided) || string(got.Arguments) != `{"n":9007199254740993}` || got.Version != 2 || !got.DecideTime.Equal(start.Add(time.Minute)) {
			t.Fatalf("%+v\n%+v\n%v", got, decided, err)
		}
		for _, id := range []string{"k_nope", made.ID} {
			if _, err := s.Card(t.Context(), "elsewhere", id); !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		}
	})
}

// Of many answers at the same time one counts, and a refused one leaves nothing behind.
func TestOneAnswerCounts(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		c := mustCreate(t, s, newCard("t", "c"))
		refusal := errors.New("no")
		bad := answer(c, true)
		bad.Grant, bad.Check = &grant.Grant{ID: "g_bad", Namespace: "n"}, func(card.Card) error { return refusal }
		if _, _, err := s.Decide(t.Context(), bad); !errors.Is(err, refusal) {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 16 {
			wg.Go(func() {
				_, _, err := s.Decide(context.Background(), answer(c, true))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, store.ErrDecided) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Fatal(won)
		}
		if _, _, err := s.Decide(t.Context(), store.Answer{Namespace: "n", Card: "k_nope"}); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		changes, err := s.Changes(t.Context(), store.View{}, 0, 10)
		if err != nil || len(changes) != 2 || changes[0].Card.State != pending || changes[0].Card.Version != 1 || changes[1].Card.State != approved {
			t.Fatalf("%+v %v", changes, err)
		}
		if grants, _, err := s.Grants(t.Context(), store.View{Namespace: "n"}, true, 0, 10); err != nil || len(grants) != 0 {
			t.Fatal(grants, err)
		}
	})
}

// A grant that is made while the question is on its way is found inside the commit; so is a cancellation.
func TestWhatHappensWhileAskingIsSeen(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		first := mustCreate(t, s, newCard("t", "c"))
		a := answer(first, true)
		a.Lifetime = permissionv1.Lifetime_LIFETIME_CONVERSATION
		a.Grant = &grant.Grant{ID: "g", Namespace: "n", Lifetime: a.Lifetime, Scope: "talk", Tool: "mcp.fs.w", ProviderDigest: "p", Fingerprint: "f", Principal: bot, By: alice, Card: first.ID}
		if _, _, err := s.Decide(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		late := newCard("t", "late")
		if _, err := s.CreateCard(t.Context(), late, store.CallOf(late, start), noCaps); !errors.Is(err, store.ErrGranted) {
			t.Fatal(err)
		}
		other := newCard("t2", "c")
		other.Conversation = "another"
		mustCreate(t, s, other)
		if _, err := s.Cancel(t.Context(), store.Cancel{CallKey: store.CallKey{Namespace: "n", Turn: "t3"}, By: bot, At: start}); err != nil {
			t.Fatal(err)
		}
		gone := newCard("t3", "c")
		gone.Conversation = "another"
		if _, err := s.CreateCard(t.Context(), gone, store.CallOf(gone, start), noCaps); !errors.Is(err, store.ErrCancelled) {
			t.Fatal(err)
		}
	})
}

// The end of a call is recorded once, and it is found until it is.
func TestTheEndIsRecordedOnce(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, reopen func() store.Store) {
		c := mustCreate(t, s, newCard("t", "c"))
		if _, _, err := s.Decide(t.Context(), answer(c, false)); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, s, newCard("t", "open"))
		s = reopen()
		if open, err := s.Unended(t.Context(), 10); err != nil || len(open) != 1 || open[0].ID != c.ID {
			t.Fatal(open, err)
		}
		end := card.End{State: commonv1.OutcomeState_OUTCOME_STATE_DENIED, Reason: permissionv1.ErrorReason_ERROR_REASON_CARD_DENIED, Receipt: "r_1"}
		for _, e := range []card.End{end, {State: commonv1.OutcomeState_OUTCOME_STATE_STALE, Receipt: "r_2"}} {
			if got, err := s.EndCard(t.Context(), "n", c.ID, e, start); err != nil || got.End != end {
				t.Fatalf("%+v %v", got.End, err)
			}
		}
		if open, err := s.Unended(t.Context(), 10); err != nil || len(open) != 0 {
			t.Fatal(open, err)
		}
		ended, err := s.EndCard(t.Context(), "n", "k_t_open", end, start)
		if err != nil || ended.State != permissionv1.CardState_CARD_STATE_CANCELLED || ended.Version != 2 {
			t.Fatalf("%+v %v", ended, err)
		}
	})
}

// A situation has the settings that were in force when the turn opened and everything since, and nothing of before.
func TestASituationHasWhatHeldSince(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
		caps := func(open time.Time) (out []commonv1.Mode) {
			sit, err := s.Situation(t.Context(), store.CallKey{Namespace: "n", Turn: "t", Call: "c"}, decide.Facts{Namespace: "n", Tool: "mcp.fs.w", Provider: "mcp.fs", OpenTime: open, Principal: bot})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range sit.Settings {
				out = append(out, v.Cap)
			}
			return out
		}
		for i, m := range []commonv1.Mode{5, 1, 4} {
			if _, err := s.PutSettings(t.Context(), "n", setting.Settings{Cap: m, By: alice, At: at(10 * (i + 1))}, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		for minute, want := range map[int]string{0: "[1 5 1 4]", 10: "[5 1 4]", 15: "[5 1 4]", 25: "[1 4]", 30: "[4]", 99: "[4]"} {
			var got []int
			for _, m := range caps(at(minute)) {
				got = append(got, int(m))
			}
			if fmt.Sprint(got) != want {
				t.Errorf("opened at %d: %v, want %s", minute, got, want)
			}
		}
		if _, err := s.PutSettings(t.Context(), "n", setting.Settings{}, 1); !errors.Is(err, store.ErrVersion) {
			t.Fatal(err)
		}
	})
}

// Ten thousand open cards stay quick because every question that is asked often has an index: no plan scans a table.
func TestNoScans(t *testing.T) {
	s := engines["sqlite"](t, t.TempDir())
	defer s.Close()
	for _, plan := range store.Plans(t.Context(), s) {
		t.Error(plan)
	}
}

// Ten thousand open cards page and watch to the last one.
func TestTenThousandOpenCards(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		const n = 10000
		var wg sync.WaitGroup
		for w := range 50 {
			wg.Go(func() {
				for i := range n / 50 {
					c := newCard(fmt.Sprint("t", w), fmt.Sprint("c", i))
					c.Principal.ID = fmt.Sprint("bot", w)
					if _, err := s.CreateCard(context.Background(), c, store.CallOf(c, start), store.Caps{PerTurn: 1000, PerPrincipal: 1000}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		seen, before := map[string]bool{}, int64(0)
		for more := true; more; {
			page, m, err := s.Cards(t.Context(), store.CardFilter{View: store.View{Namespace: "n"}, State: pending, Before: before, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page {
				seen[c.ID], before = true, c.Seq
			}
			more = m
		}
		upTo, err := s.LastChange(t.Context())
		if err != nil || upTo != n || len(seen) != n {
			t.Fatal(upTo, len(seen), err)
		}
		last := int64(0)
		for count := 0; count < n; {
			page, err := s.Open(t.Context(), store.View{Namespace: "n"}, last, upTo, 64)
			if err != nil || len(page) == 0 {
				t.Fatal(count, err)
			}
			for _, c := range page {
				if c.Seq <= last {
					t.Fatal("out of order")
				}
				last = c.Seq
			}
			count += len(page)
		}
	})
}
