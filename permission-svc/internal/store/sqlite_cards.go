package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/sqlitedb"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
)

const (
	pending   = permissionv1.CardState_CARD_STATE_PENDING
	cancelled = permissionv1.CardState_CARD_STATE_CANCELLED
)

const cardColumns = "cards.body, cards.arguments, cards.state, cards.version, cards.seq, cards.answer, cards.grant_id, cards.end_state, cards.end_reason, cards.end_changed, cards.receipt"

// answerRecord is the part of a card that its answer fills in.
type answerRecord struct {
	Time     time.Time
	By       actor.Actor
	Lifetime permissionv1.Lifetime
	Reason   string
}

func scanCard(row scanner) (c card.Card, err error) {
	var body, answer string
	var arguments []byte
	var state, end, reason int32
	if err = row.Scan(&body, &arguments, &state, &c.Version, &c.Seq, &answer, &c.Grant, &end, &reason, &c.End.Changed, &c.End.Receipt); err != nil {
		return c, err
	}
	if err = json.Unmarshal([]byte(body), &c.Content); err != nil {
		return c, err
	}
	c.Arguments, c.State, c.End.State = arguments, permissionv1.CardState(state), commonv1.OutcomeState(end)
	c.End.Reason = permissionv1.ErrorReason(reason)
	if answer != "" {
		var a answerRecord
		err = json.Unmarshal([]byte(answer), &a)
		c.DecideTime, c.DecidedBy, c.Lifetime, c.Reason = a.Time, a.By, a.Lifetime, a.Reason
	}
	return c, err
}

func cardOfCall(ctx context.Context, q sqlitedb.Querier, key CallKey) (card.Card, error) {
	return one(ctx, q, scanCard, "SELECT "+cardColumns+" FROM cards WHERE namespace = ? AND turn = ? AND call = ?", key.Namespace, key.Turn, key.Call)
}

func cardByID(ctx context.Context, q sqlitedb.Querier, namespace, id string) (card.Card, error) {
	return one(ctx, q, scanCard, "SELECT "+cardColumns+" FROM cards WHERE id = ? AND ? IN ('', namespace)", id, namespace)
}

func (s *sqlite) Card(ctx context.Context, namespace, id string) (c card.Card, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		c, err = cardByID(ctx, q, namespace, id)
		return err
	})
	return c, err
}

func (s *sqlite) CardOfCall(ctx context.Context, key CallKey) (c card.Card, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		c, err = cardOfCall(ctx, q, key)
		return err
	})
	return c, err
}

// log writes the next change.
func log(tx *sql.Tx, namespace, id string, state permissionv1.CardState) (int64, error) {
	r, err := tx.Exec("INSERT INTO card_log (namespace, card, state) VALUES (?, ?, ?)", namespace, id, int32(state))
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

func (s *sqlite) CreateCard(ctx context.Context, c card.Card, call grant.Call, caps Caps) (out card.Card, err error) {
	defer s.asked.forget(CallKey{Namespace: c.Namespace, Turn: c.Turn})
	ctx = context.WithoutCancel(ctx) // an interrupted statement would undo the neighbours of the commit
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		q := txQuerier{tx}
		key := CallKey{c.Namespace, c.Turn, c.Call}
		if out, err = cardOfCall(ctx, q, key); !errors.Is(err, ErrNotFound) {
			return err
		}
		if err := mayCreate(ctx, q, c, call, caps); err != nil {
			return err
		}
		if c.Seq, err = log(tx, c.Namespace, c.ID, pending); err != nil {
			return err
		}
		c.State, c.Version = pending, 1
		out = c
		_, err = tx.Exec(`INSERT INTO cards (id, namespace, turn, call, principal, principal_kind, conversation, tool, state, version, seq, body, arguments)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			c.ID, c.Namespace, c.Turn, c.Call, c.Principal.ID, int32(c.Principal.Kind), c.Conversation, c.Tool.ID, int32(c.State), c.Version, c.Seq,
			toJSON(c.Content), c.Arguments)
		return err
	})
	return out, err
}

// mayCreate looks at what may have changed since the decision to ask.
func mayCreate(ctx context.Context, q sqlitedb.Querier, c card.Card, call grant.Call, caps Caps) error {
	if own, turn, err := cancels(ctx, q, CallKey{c.Namespace, c.Turn, c.Call}); err != nil {
		return err
	} else if own || turn {
		return ErrCancelled
	}
	if len(c.Offers) > 1 {
		grants, err := grantsFor(ctx, q, c.Namespace, c.Principal, c.Tool.ID)
		if err != nil {
			return err
		}
		if _, ok := grant.Find(grants, call); ok {
			return ErrGranted
		}
	}
	var n int64
	if err := q.QueryRowContext(ctx, "SELECT count(*) FROM cards WHERE namespace = ? AND turn = ? AND state = ?", c.Namespace, c.Turn, int32(pending)).Scan(&n); err != nil {
		return err
	}
	if n >= caps.PerTurn {
		return &LimitError{Name: "open_cards_max_per_turn", Limit: caps.PerTurn, Got: n + 1}
	}
	if err := q.QueryRowContext(ctx, "SELECT count(*) FROM cards WHERE namespace = ? AND principal = ? AND principal_kind = ? AND state = ?",
		c.Namespace, c.Principal.ID, int32(c.Principal.Kind), int32(pending)).Scan(&n); err != nil {
		return err
	}
	if n >= caps.PerPrincipal {
		return &LimitError{Name: "open_cards_max_per_principal", Limit: caps.PerPrincipal, Got: n + 1}
	}
	return nil
}

// close is the compare-and-set from pending to another state, with its change in the log.
func closeCard(tx *sql.Tx, c *card.Card) error {
	c.Version++
	r, err := tx.Exec("UPDATE cards SET state = ?, version = ?, answer = ?, grant_id = ? WHERE id = ? AND state = ? AND version = ?",
		int32(c.State), c.Version, toJSON(answerRecord{c.DecideTime, c.DecidedBy, c.Lifetime, c.Reason}), c.Grant, c.ID, int32(pending), c.Version-1)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		return errors.Join(ErrVersion, err)
	}
	_, err = log(tx, c.Namespace, c.ID, c.State)
	return err
}

func (s *sqlite) Decide(ctx context.Context, a Answer) (c card.Card, released []card.Card, err error) {
	if a.Grant != nil {
		defer s.standing.clear()
	}
	ctx = context.WithoutCancel(ctx)
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		released = nil
		if c, err = cardByID(ctx, txQuerier{tx}, a.Namespace, a.Card); err != nil {
			return err
		}
		switch {
		case c.State != pending:
			return ErrDecided
		case c.Version != a.Version:
			return ErrVersion
		}
		if err := a.Check(c); err != nil {
			return err
		}
		c.State, c.Lifetime = permissionv1.CardState_CARD_STATE_DENIED, 0
		if a.Approve {
			c.State, c.Lifetime = permissionv1.CardState_CARD_STATE_APPROVED, a.Lifetime
		}
		c.DecideTime, c.DecidedBy, c.Reason = a.At, a.By, a.Reason
		if a.Grant == nil {
			return closeCard(tx, &c)
		}
		c.Grant = a.Grant.ID
		if err := insertGrant(tx, *a.Grant); err != nil {
			return err
		}
		if err := closeCard(tx, &c); err != nil {
			return err
		}
		released, err = release(ctx, tx, a)
		return err
	})
	return c, released, err
}

// release answers the other open cards that the new grant covers: an answer from one place releases all who wait for it.
func release(ctx context.Context, tx *sql.Tx, a Answer) ([]card.Card, error) {
	g := *a.Grant
	waiting, err := collect(ctx, txQuerier{tx}, scanCard, "SELECT "+cardColumns+" FROM cards WHERE namespace = ? AND principal = ? AND principal_kind = ? AND state = ? AND tool = ?",
		g.Namespace, g.Principal.ID, int32(g.Principal.Kind), int32(pending), g.Tool)
	if err != nil {
		return nil, err
	}
	var out []card.Card
	for _, c := range waiting {
		offer, ok := c.Offered(g.Lifetime)
		if !ok || offer.Word != g.CommandWord || !g.Stands(CallOf(c, a.At)) {
			continue
		}
		c.State, c.Lifetime, c.DecideTime, c.DecidedBy, c.Grant = permissionv1.CardState_CARD_STATE_APPROVED, g.Lifetime, a.At, a.By, g.ID
		c.Reason = "covered by the answer to card " + g.Card
		if err := closeCard(tx, &c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// CallOf is a card's call as a grant is held against it.
func CallOf(c card.Card, now time.Time) grant.Call {
	return grant.Call{
		Tool: c.Tool.ID, ProviderDigest: c.Tool.ProviderDigest, Fingerprint: c.Tool.Fingerprint, Principal: c.Principal, Agent: c.Agent,
		Turn: c.Turn, Conversation: c.Conversation, Project: c.Project, Command: c.Command, Words: c.Words, Now: now,
	}
}

func (s *sqlite) Cancel(ctx context.Context, x Cancel) (out []card.Card, err error) {
	defer s.asked.forget(CallKey{Namespace: x.Namespace, Turn: x.Turn})
	ctx = context.WithoutCancel(ctx)
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		out = nil
		if _, err := tx.Exec("INSERT INTO cancels (namespace, turn, call, at, actor, reason) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
			x.Namespace, x.Turn, x.Call, nanos(x.At), toJSON(x.By), x.Reason); err != nil {
			return err
		}
		query, args := "SELECT "+cardColumns+" FROM cards WHERE namespace = ? AND turn = ? AND state = ?", []any{x.Namespace, x.Turn, int32(pending)}
		if x.Call != "" {
			query, args = query+" AND call = ?", append(args, x.Call)
		}
		open, err := collect(ctx, txQuerier{tx}, scanCard, query+" ORDER BY seq", args...)
		if err != nil {
			return err
		}
		for _, c := range open {
			c.State, c.DecideTime, c.DecidedBy, c.Reason = cancelled, x.At, x.By, x.Reason
			if err := closeCard(tx, &c); err != nil {
				return err
			}
			out = append(out, c)
		}
		return nil
	})
	return out, err
}

func cancels(ctx context.Context, q sqlitedb.Querier, key CallKey) (call, turn bool, err error) {
	names, err := collect(ctx, q, func(row scanner) (name string, err error) { return name, row.Scan(&name) },
		"SELECT call FROM cancels WHERE namespace = ? AND turn = ? AND call IN ('', ?)", key.Namespace, key.Turn, key.Call)
	for _, n := range names {
		call, turn = call || n != "", turn || n == ""
	}
	return call, turn, err
}

func (s *sqlite) EndCard(ctx context.Context, namespace, id string, end card.End, at time.Time) (c card.Card, err error) {
	ctx = context.WithoutCancel(ctx)
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		if c, err = cardByID(ctx, txQuerier{tx}, namespace, id); err != nil || c.End.State != 0 {
			return err
		}
		if c.State == pending {
			c.State, c.DecideTime, c.Reason = cancelled, at, "the call can no longer happen"
			if err := closeCard(tx, &c); err != nil {
				return err
			}
		}
		c.End = end
		_, err = tx.Exec("UPDATE cards SET end_state = ?, end_reason = ?, end_changed = ?, receipt = ? WHERE id = ? AND end_state = 0", int32(end.State), int32(end.Reason), end.Changed, end.Receipt, id)
		return err
	})
	return c, err
}
