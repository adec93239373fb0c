package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/sqlitedb"
)

// The next id is taken where the row is written, so that a write that is undone takes none.
const insertReceipt = `INSERT INTO receipts (id, ns, name, kind, call, state, tool, principal, conversation, card, trace_id, sealed,
		digest, statement, countersignature)
	SELECT 1 + coalesce((SELECT max(id) FROM receipts WHERE id BETWEEN ?1 AND ?2), ?1),
		?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16
	WHERE ?17 = 0 OR NOT EXISTS (SELECT 1 FROM claims WHERE ns = ?3 AND call = ?6)`

// Seal implements Store.
func (s *SQLite) Seal(ctx context.Context, in Sealing) (Receipt, error) {
	r := in.Receipt
	ns, err := s.NamespaceID(ctx, r.Namespace)
	if err != nil {
		return r, err
	}
	r.Digest, r.Count = digestOf(r.Statement), 1
	low := ns << sequenceBits
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(insertReceipt, low, low|(1<<sequenceBits-1), ns, r.Name, int64(r.Kind), optional(r.Call), int64(r.State),
			optional(r.Tool), optional(r.Principal), optional(r.Conversation), optional(r.Card), optional(r.TraceID), r.Sealed.UnixMicro(),
			r.Digest[:], r.Statement, r.Countersignature, in.TakesClaim)
		if sqlitedb.IsConflict(err) {
			return &Taken{}
		}
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, &Taken{})
		}
		if r.ID, err = res.LastInsertId(); err != nil {
			return err
		}
		if _, err = tx.Exec("INSERT INTO openings (receipt, body, arguments, result) VALUES (?, ?, ?, ?)",
			r.ID, in.Opening.Body, optionalID(in.Opening.Arguments), optionalID(in.Opening.Result)); err != nil {
			return err
		}
		if in.Claim != 0 {
			_, err = tx.Exec("UPDATE claims SET receipt = ? WHERE id = ?", r.ID, in.Claim)
		}
		return err
	})
	r.Sequence = r.ID - low
	return r, s.whoTook(ctx, err, r.Namespace, r.Call)
}

// Repeat implements Store.
func (s *SQLite) Repeat(ctx context.Context, receipt int64, at time.Time) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO repeats (receipt, count, last) VALUES (?1, 2, ?2)
			ON CONFLICT (receipt) DO UPDATE SET count = count + 1, last = ?2`, receipt, at.UnixMicro())
		return err
	})
}

const receiptColumns = `SELECT r.id, r.ns, r.name, r.kind, coalesce(r.call, ''), r.state, coalesce(r.tool, ''), coalesce(r.principal, ''),
	coalesce(r.conversation, ''), coalesce(r.card, ''), coalesce(r.trace_id, ''), r.sealed, r.digest, r.statement, r.countersignature,
	coalesce(p.count, 1) FROM receipts r LEFT JOIN repeats p ON p.receipt = r.id `

func (s *SQLite) scanReceipt(row interface{ Scan(...any) error }) (r Receipt, err error) {
	var ns, sealed, kind, state int64
	var digest []byte
	err = row.Scan(&r.ID, &ns, &r.Name, &kind, &r.Call, &state, &r.Tool, &r.Principal, &r.Conversation, &r.Card, &r.TraceID,
		&sealed, &digest, &r.Statement, &r.Countersignature, &r.Count)
	r.Namespace, r.Sequence, r.Sealed = s.namespaceOf(ns), r.ID-ns<<sequenceBits, time.UnixMicro(sealed).UTC()
	r.Kind, r.State = evidencev1.ReceiptKind(kind), commonv1.OutcomeState(state)
	copy(r.Digest[:], digest)
	return r, err
}

func (s *SQLite) oneReceipt(ctx context.Context, where string, args ...any) (r Receipt, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		r, err = s.scanReceipt(q.QueryRowContext(ctx, receiptColumns+where, args...))
		return err
	})
	return r, notFound(err)
}

func (s *SQLite) manyReceipts(ctx context.Context, where string, args ...any) (list []Receipt, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return each(ctx, q, receiptColumns+where, args, func(rows *sql.Rows) error {
			r, err := s.scanReceipt(rows)
			list = append(list, r)
			return err
		})
	})
	return list, err
}

// Receipt implements Store.
func (s *SQLite) Receipt(ctx context.Context, name string) (Receipt, error) {
	return s.oneReceipt(ctx, "WHERE r.name = ?", name)
}

// ReceiptOfCall implements Store.
func (s *SQLite) ReceiptOfCall(ctx context.Context, namespace, call string) (Receipt, error) {
	if namespace == "" {
		return s.receiptOfCallAnywhere(ctx, call)
	}
	ns, ok := s.known(namespace)
	if !ok {
		return Receipt{}, ErrNotFound
	}
	return s.receiptOfCall(ctx, ns, call)
}

func (s *SQLite) receiptOfCallAnywhere(ctx context.Context, call string) (Receipt, error) {
	s.mu.RLock()
	all := slices.Sorted(maps.Keys(s.names))
	s.mu.RUnlock()
	for _, ns := range all {
		if r, err := s.receiptOfCall(ctx, ns, call); !errors.Is(err, ErrNotFound) {
			return r, err
		}
	}
	return Receipt{}, ErrNotFound
}

func (s *SQLite) receiptOfCall(ctx context.Context, ns int64, call string) (Receipt, error) {
	r, err := s.oneReceipt(ctx, "WHERE r.ns = ? AND r.call = ? AND r.kind = 1", ns, call)
	if errors.Is(err, ErrNotFound) {
		return s.oneReceipt(ctx, "WHERE r.ns = ? AND r.call = ? AND r.kind = 2 ORDER BY r.id DESC LIMIT 1", ns, call)
	}
	return r, err
}

// Ended implements Store.
func (s *SQLite) Ended(ctx context.Context, namespace, call string) (receipt string, err error) {
	ns, ok := s.known(namespace)
	if !ok {
		return "", nil
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, "SELECT name FROM receipts WHERE ns = ? AND call = ? AND kind = 1", ns, call).Scan(&receipt)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return receipt, err
}

// ReceiptOfDigest implements Store.
func (s *SQLite) ReceiptOfDigest(ctx context.Context, digest [32]byte) (Receipt, error) {
	return s.oneReceipt(ctx, "WHERE r.digest = ? AND r.kind <> 1", digest[:])
}

// Opening implements Store.
func (s *SQLite) Opening(ctx context.Context, receipt int64) (o Opening, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, "SELECT body, coalesce(arguments, 0), coalesce(result, 0) FROM openings WHERE receipt = ?", receipt).
			Scan(&o.Body, &o.Arguments, &o.Result)
	})
	return o, notFound(err)
}

// List implements Store.
func (s *SQLite) List(ctx context.Context, f Filter) ([]Receipt, error) {
	ns, ok := s.known(f.Namespace)
	if !ok {
		return nil, nil
	}
	low := ns << sequenceBits
	high := low | (1<<sequenceBits - 1)
	if f.Before > 0 {
		high = low + f.Before - 1
	}
	where, args := []string{"r.id BETWEEN ? AND ?"}, []any{low, high}
	add := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	if f.Principal != "" {
		add("r.principal = ?", f.Principal)
	}
	if f.Conversation != "" {
		add("r.conversation = ?", f.Conversation)
	}
	if f.Turn != "" {
		// "0" is the character after "/": the range is every name that begins with the turn's.
		add("r.call >= ? AND r.call < ?", "turns/"+f.Turn+"/", "turns/"+f.Turn+"0")
	}
	if f.Tool != "" {
		add("r.tool = ?", f.Tool)
	}
	if f.State != 0 {
		add("r.state = ?", int64(f.State))
	}
	if f.Kind != 0 {
		add("r.kind = ?", int64(f.Kind))
	}
	return s.manyReceipts(ctx, "WHERE "+strings.Join(where, " AND ")+" ORDER BY r.id DESC LIMIT ?", append(args, f.Limit)...)
}

// ReceiptsOf implements Store.
func (s *SQLite) ReceiptsOf(ctx context.Context, what, name string, limit int) ([]Receipt, error) {
	column := map[string]string{"trace": "r.trace_id", "card": "r.card"}[what]
	if column == "" {
		return nil, errors.New("receipts are found by trace or card")
	}
	return s.manyReceipts(ctx, "WHERE "+column+" = ? ORDER BY r.id DESC LIMIT ?", name, limit)
}

// Owns implements Store.
func (s *SQLite) Owns(ctx context.Context, namespace, principal, conversation string) (owns bool, err error) {
	ns, ok := s.known(namespace)
	if !ok {
		return false, nil
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM receipts WHERE conversation = ? AND principal = ? AND ns = ?)",
			conversation, principal, ns).Scan(&owns)
	})
	return owns, err
}

// PutBlob implements Store.
func (s *SQLite) PutBlob(ctx context.Context, b Blob) (Blob, error) {
	ns, err := s.NamespaceID(ctx, b.Namespace)
	if err != nil {
		return b, err
	}
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO blobs (ns, sha256, size, created) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
			ns, b.SHA256, b.Size, time.Now().UnixMicro()); err != nil {
			return err
		}
		if err := tx.QueryRow("SELECT id FROM blobs WHERE ns = ? AND sha256 = ?", ns, b.SHA256).Scan(&b.ID); err != nil {
			return err
		}
		if b.Handle == "" {
			return nil
		}
		if _, err := tx.Exec("INSERT INTO handles (handle, blob, conversation, media_type) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
			b.Handle, b.ID, b.Conversation, b.MediaType); err != nil {
			return err
		}
		return tx.QueryRow("SELECT handle FROM handles WHERE blob = ? AND conversation = ? AND media_type = ?",
			b.ID, b.Conversation, b.MediaType).Scan(&b.Handle)
	})
	return b, err
}

// Blob implements Store.
func (s *SQLite) Blob(ctx context.Context, handle string) (Blob, error) {
	return s.oneBlob(ctx, `SELECT b.id, b.ns, b.sha256, b.size, h.handle, h.conversation, h.media_type
		FROM handles h JOIN blobs b ON b.id = h.blob WHERE h.handle = ?`, handle)
}

// BlobByID implements Store.
func (s *SQLite) BlobByID(ctx context.Context, id int64) (Blob, error) {
	return s.oneBlob(ctx, "SELECT id, ns, sha256, size, '', '', '' FROM blobs WHERE id = ?", id)
}

func (s *SQLite) oneBlob(ctx context.Context, query string, arg any) (b Blob, err error) {
	var ns int64
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, query, arg).Scan(&b.ID, &ns, &b.SHA256, &b.Size, &b.Handle, &b.Conversation, &b.MediaType)
	})
	b.Namespace = s.namespaceOf(ns)
	return b, notFound(err)
}
