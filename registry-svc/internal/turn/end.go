package turn

import (
	"context"
	"time"
)

// cardsTimeout bounds one question to the cards: a turn's end does not hang on it.
const cardsTimeout = 5 * time.Second

// End ends a turn. One that has ended already stays as it is and is returned, except that it can still be cancelled: its
// calls may be running. That its cards are to be cancelled is stored with the end, so that it happens also after a crash.
func (m *Manager) End(ctx context.Context, id string, state State, why string) (Turn, error) {
	t, ended, err := m.opts.Store.EndTurn(ctx, id, state, m.opts.Now())
	if err != nil || !ended {
		return t, err
	}
	m.cache.ended(id)
	m.mu.Lock()
	delete(m.used, id)
	m.mu.Unlock()
	m.Hub.publish(t)
	m.cancelCards(ctx, t, why)
	return t, nil
}

// cancelCards is tried again by Sweep where it fails: the turn has ended, so no card of it can lead to a call meanwhile.
func (m *Manager) cancelCards(ctx context.Context, t Turn, why string) {
	ctx, cancel := context.WithTimeout(ctx, cardsTimeout)
	defer cancel()
	if m.opts.Cards != nil {
		if err := m.opts.Cards.Cancel(ctx, t, why); err != nil {
			m.opts.Log.Warn("registry.cards_not_cancelled", "turn", t.ID, "error", err)
			return
		}
	}
	if err := m.opts.Store.CardsCancelled(ctx, t.ID); err != nil {
		m.opts.Log.Warn("registry.cards_not_cancelled", "turn", t.ID, "error", err)
	}
}

// List returns turns newest first.
func (m *Manager) List(ctx context.Context, f Filter) ([]Turn, error) {
	return m.opts.Store.ListTurns(ctx, f)
}

func (m *Manager) touch(id string) {
	now := m.opts.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[id] = now
}

// Flush stores when turns were used last. A crash loses what was not flushed, which only lets a turn look older.
func (m *Manager) Flush(ctx context.Context) error {
	m.mu.Lock()
	used := m.used
	m.used = map[string]time.Time{}
	m.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	err := m.opts.Store.Touch(ctx, used)
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range used {
		if m.used[id].Before(at) {
			m.used[id] = at
		}
	}
	return err
}

// sweepPage is how many turns are looked at in one query.
const sweepPage = 200

// Sweep does what is due: it ends turns that were idle too long and have no open card, cancels the cards of turns whose
// end was cut short, and forgets old request ids.
func (m *Manager) Sweep(ctx context.Context) error {
	if err := m.Flush(ctx); err != nil {
		return err
	}
	if err := m.opts.Store.ForgetRequests(ctx, m.opts.Now().Add(-requestMemory)); err != nil {
		return err
	}
	pending, err := m.opts.Store.CardsToCancel(ctx, sweepPage)
	if err != nil {
		return err
	}
	for _, t := range pending {
		m.cancelCards(ctx, t, "the turn ended")
	}
	return m.endIdle(ctx)
}

func (m *Manager) endIdle(ctx context.Context) error {
	before, after := m.opts.Now().Add(-m.opts.Idle), ""
	for {
		idle, err := m.opts.Store.IdleTurns(ctx, before, after, sweepPage)
		if err != nil || len(idle) == 0 {
			return err
		}
		for _, t := range idle {
			after = t.ID
			if err := m.endIfUnasked(ctx, t); err != nil {
				return err
			}
		}
	}
}

// endIfUnasked ends an idle turn, unless somebody is being asked for it: cards never time out (R49).
func (m *Manager) endIfUnasked(ctx context.Context, t Turn) error {
	if m.opts.Cards != nil {
		bounded, cancel := context.WithTimeout(ctx, cardsTimeout)
		defer cancel()
		open, err := m.opts.Cards.AnyOpen(bounded, t)
		if err != nil || open {
			return err
		}
	}
	m.mu.Lock()
	_, used := m.used[t.ID]
	m.mu.Unlock()
	if used { // since it was read from the store
		return nil
	}
	_, err := m.End(ctx, t.ID, Ended, "the turn was idle for "+m.opts.Idle.String())
	return err
}
