// Package session is one MCP connection and its process: the handshake in both
// eras of the protocol, listings and calls on raw bytes, and what a server may
// ask of its client.
//
// The legacy era (up to 2025-11-25) begins with initialize and lets the server
// send requests; the MCP SDK does both there. The modern era (from 2026-07-28)
// has neither: every request carries what the handshake used to say.
package session

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/writ-dev/writ/mcp-host-svc/internal/process"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

// Era is one of the two shapes of the protocol.
type Era string

// The eras. Unknown means that the server is asked.
const (
	EraUnknown Era = ""
	EraLegacy  Era = "legacy"
	EraModern  Era = "modern"
)

// Config of a session. Start is required; everything else has a default.
type Config struct {
	Server string // the connector's name, for messages
	// Start starts the process. It is called once more when the server ends on
	// being asked for its era.
	Start func(ctx context.Context) (process.Process, error)
	Era   Era // what is known from an earlier session
	// Folder is the one folder that the server is told as its root; empty: none.
	Folder string
	// Version is what the client calls itself beside "writ".
	Version string

	ProbeTimeout time.Duration // before initialize is tried as well (discover_timeout, 2 s)
	StopGrace    time.Duration // for the server to end by itself (stop_grace, 2 s)
	StderrBytes  int           // of standard error that are kept (server_log_bytes, 64 KiB)
	List         ListLimits
	Wire         wire.Options

	// RootsRead is called before an answer to roots/list goes out.
	RootsRead func()
	// ListChanged is called when the server says that its tools changed. It must
	// not block.
	ListChanged func()
	Logger      *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.ProbeTimeout <= 0 {
		c.ProbeTimeout = 2 * time.Second
	}
	if c.StopGrace <= 0 {
		c.StopGrace = 2 * time.Second
	}
	if c.StderrBytes <= 0 {
		c.StderrBytes = 64 << 10
	}
	if c.Version == "" {
		c.Version = "0.1.0"
	}
	if c.RootsRead == nil {
		c.RootsRead = func() {}
	}
	if c.ListChanged == nil {
		c.ListChanged = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.List = c.List.withDefaults()
	return c
}

// Info says what the server said of itself.
type Info struct {
	Era             Era
	ProtocolVersion string
	Name            string
	Version         string
	Instructions    string
	ListChanged     bool // it declared that it tells when its tools change
}

// Session is an open session. Close must be called, also after Done.
type Session struct {
	cfg     Config
	proc    process.Process
	conn    *wire.Conn
	log     *wire.Tail
	info    Info
	sdk     *mcp.ClientSession
	folder  atomic.Pointer[string]
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	done    chan struct{}
	drained chan struct{} // closed at the end of its standard error
	closing sync.Once
	exit    process.Exit
	started time.Time
}

// newSession starts the process and the connection; nothing is said yet.
func newSession(ctx context.Context, cfg Config) (*Session, error) {
	proc, err := cfg.Start(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{cfg: cfg, proc: proc, log: wire.NewTail(cfg.StderrBytes), done: make(chan struct{}), drained: make(chan struct{}), started: time.Now()}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.folder.Store(&cfg.Folder)
	opt := cfg.Wire
	opt.OnNotification = s.onNotification
	opt.OnNoise = s.onNoise
	s.conn = wire.New(proc.Stdout(), proc.Stdin(), opt)
	s.wg.Add(2)
	go func() { defer s.wg.Done(); defer close(s.drained); _, _ = io.Copy(s.log, proc.Stderr()) }()
	go func() { defer s.wg.Done(); s.watch() }()
	return s, nil
}

// lastWords is how long the output of a process that has ended is still read:
// an answer may be on its way, and a child may hold the pipe open for good.
const lastWords = time.Second

// watch closes done when the server is gone, by the end of its output or of its
// process, whichever comes first.
func (s *Session) watch() {
	defer close(s.done)
	select {
	case <-s.conn.Done():
	case <-s.proc.Exited():
		t := time.NewTimer(lastWords)
		defer t.Stop()
		select {
		case <-s.conn.Done():
		case <-t.C:
		}
	}
}

// Done is closed when the server is gone.
func (s *Session) Done() <-chan struct{} { return s.done }

// Info returns what the server said of itself.
func (s *Session) Info() Info { return s.info }

// PID is the process id of the server as the host sees it.
func (s *Session) PID() int { return s.proc.PID() }

// Started is when the process was started.
func (s *Session) Started() time.Time { return s.started }

// Enforced says what isolation is in force for the process.
func (s *Session) Enforced() process.Enforced { return s.proc.Enforced() }

// Stats counts what came that should not have.
func (s *Session) Stats() wire.Stats { return s.conn.Stats() }

// Log returns the end of what the server wrote to standard error, and of what it
// wrote to standard output that is no message.
func (s *Session) Log() []byte { return s.log.Bytes() }

// SetFolder changes the folder that is told as the root.
func (s *Session) SetFolder(folder string) { s.folder.Store(&folder) }

// Close ends the session and its process and waits until nothing is left.
func (s *Session) Close() process.Exit {
	s.closing.Do(func() {
		s.cancel()
		if s.sdk != nil {
			_ = s.sdk.Close()
		}
		s.conn.CloseInput()
		s.exit = s.proc.Stop(s.cfg.StopGrace)
		s.conn.Close()
		s.awaitLastWords()
		_ = s.proc.Stderr().Close()
		s.wg.Wait()
	})
	return s.exit
}

// awaitLastWords reads standard error to its end: why a server ended stands there.
func (s *Session) awaitLastWords() {
	t := time.NewTimer(lastWords)
	defer t.Stop()
	select {
	case <-s.drained:
	case <-t.C:
	}
}

func (s *Session) onNotification(method string, _ []byte) {
	if method == "notifications/tools/list_changed" {
		s.cfg.ListChanged()
	}
}

func (s *Session) onNoise(text []byte) {
	const most = 1 << 10
	line := append([]byte("[stdout] "), text[:min(len(text), most)]...)
	_, _ = s.log.Write(append(line, '\n'))
}

// FileURI is the file:// URI of an absolute path.
func FileURI(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// root is the folder that the server is told, if there is one.
func (s *Session) root() (uri, name string, ok bool) {
	f := *s.folder.Load()
	if f == "" {
		return "", "", false
	}
	return FileURI(f), filepath.Base(f), true
}
