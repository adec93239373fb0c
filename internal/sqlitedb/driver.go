package sqlitedb

import (
	"context"
	"database/sql/driver"

	"modernc.org/sqlite"
)

// Bounds of the writer's statement cache: entries, and bytes of a statement's text.
const (
	maxStatements = 128
	maxStatement  = 4096
)

// connector opens connections of modernc's driver. The writer's are wrapped: see conn.
type connector struct {
	dsn    string
	writer bool
	driver sqlite.Driver
}

func (c *connector) Driver() driver.Driver { return &c.driver }

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	raw, err := c.driver.Open(c.dsn)
	if err != nil || !c.writer {
		return raw, err
	}
	return &conn{inner: raw.(inner), statements: map[string]driver.Stmt{}}, nil
}

type inner interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn is the writer's connection. No context interrupts a statement on it: SQLite would answer an interrupt by
// rolling back the whole transaction, which callers share. Statements with arguments are prepared once.
type conn struct {
	inner
	statements map[string]driver.Stmt
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx = context.WithoutCancel(ctx)
	st, err := c.cached(ctx, query, len(args))
	if err != nil {
		return nil, err
	}
	if st == nil {
		return c.inner.ExecContext(ctx, query, args)
	}
	return st.(driver.StmtExecContext).ExecContext(ctx, args)
}

// cached returns the prepared statement for query, nil if it is not one to keep. Only statements that run to their
// end in one step are kept: rows of a query could still be open when the same query comes again.
func (c *conn) cached(ctx context.Context, query string, args int) (driver.Stmt, error) {
	if st, ok := c.statements[query]; ok {
		return st, nil
	}
	if args == 0 || len(query) > maxStatement || len(c.statements) >= maxStatements {
		return nil, nil
	}
	st, err := c.inner.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.statements[query] = st
	return st, nil
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.inner.QueryContext(context.WithoutCancel(ctx), query, args)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := c.inner.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	return &statement{Stmt: st}, nil
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.inner.BeginTx(context.WithoutCancel(ctx), opts)
}

func (c *conn) Close() error {
	for _, st := range c.statements {
		st.Close()
	}
	return c.inner.Close()
}

// statement is conn's rule for statements that a caller prepared.
type statement struct{ driver.Stmt }

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.Stmt.(driver.StmtExecContext).ExecContext(context.WithoutCancel(ctx), args)
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(context.WithoutCancel(ctx), args)
}
