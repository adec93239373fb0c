package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// errEndedOnProbe says that a server ended when it was asked for its era, as some
// legacy servers do.
var errEndedOnProbe = errors.New("the server ended when it was asked for its era")

// Open starts a server and does the handshake. ctx bounds the start (start_budget).
// On an error no process is left.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	cfg = cfg.withDefaults()
	s, err := open(ctx, cfg)
	if errors.Is(err, errEndedOnProbe) {
		cfg.Era = EraLegacy
		s, err = open(ctx, cfg)
	}
	return s, err
}

func open(ctx context.Context, cfg Config) (*Session, error) {
	s, err := newSession(ctx, cfg)
	if err != nil {
		return nil, &StartError{Server: cfg.Server, Waiting: "starting the process", Cause: err}
	}
	waiting := ""
	if cfg.Era == EraLegacy {
		waiting = "waiting for the answer to initialize"
		err = s.initialize(ctx)
	} else {
		waiting, err = s.negotiate(ctx)
	}
	if err == nil {
		return s, nil
	}
	gone := s.gone()
	exit := s.Close()
	if errors.Is(err, errEndedOnProbe) {
		return nil, err
	}
	if gone {
		err = fmt.Errorf("the server ended with code %d", exit.Code)
	}
	return nil, &StartError{Server: cfg.Server, Waiting: waiting, Cause: err, Log: string(s.Log())}
}

// gone reports whether the server has ended by itself. The end of a process is
// seen a moment after the end of its output.
func (s *Session) gone() bool {
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-s.proc.Exited():
		return true
	case <-t.C:
		return false
	}
}

type discovery struct {
	result []byte
	err    error
}

// negotiate finds the era. The question of the modern era is asked first; when it
// is not answered within ProbeTimeout the legacy handshake is tried as well, and
// an answer that comes late still counts: a server may simply be slow to start.
func (s *Session) negotiate(ctx context.Context) (waiting string, err error) {
	probe, stop := context.WithCancel(ctx)
	defer stop()
	answers := make(chan discovery, 1)
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		result, err := s.conn.Do(probe, wire.Request{Method: "server/discover", Params: func(int64) []byte {
			return append(append([]byte(`{"_meta":{`), s.modernMeta()...), '}', '}')
		}})
		answers <- discovery{result, err}
	}()
	patience := time.NewTimer(s.cfg.ProbeTimeout)
	defer patience.Stop()

	select {
	case d := <-answers:
		if s.adopt(d) {
			return "", nil
		}
		var closed *wire.ClosedError
		if errors.As(d.err, &closed) {
			return "", errEndedOnProbe
		}
		return "waiting for the answer to initialize", s.initialize(ctx)
	case <-patience.C:
		return "waiting for the answer to server/discover or initialize", s.race(ctx, answers)
	case <-ctx.Done():
		return "waiting for the answer to server/discover", context.Cause(ctx)
	}
}

// race tries the legacy handshake while the question of the modern era is still
// open. Where both are answered the legacy one counts, since it was completed.
func (s *Session) race(ctx context.Context, answers <-chan discovery) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	legacy := make(chan error, 1)
	s.wg.Add(1)
	go func() { defer s.wg.Done(); legacy <- s.initialize(ctx) }()

	var modern discovery
	for {
		select {
		case modern = <-answers:
			answers = nil
			if speaksModern(modern) {
				t := time.AfterFunc(s.cfg.ProbeTimeout, giveUp) // a modern server may ignore initialize
				defer t.Stop()
			}
		case err := <-legacy:
			if err == nil || s.adopt(modern) {
				return nil
			}
			select {
			case <-s.conn.Done():
				return errEndedOnProbe
			default:
				return err
			}
		}
	}
}

func speaksModern(d discovery) bool {
	versions, _ := jsonview.Get(d.result, "supportedVersions")
	for v := range jsonview.Elements(versions) {
		if name, _ := jsonview.String(v); name == modernVersion {
			return d.err == nil
		}
	}
	return false
}

// adopt takes the answer to server/discover if it is one of the modern era.
func (s *Session) adopt(d discovery) bool {
	if !speaksModern(d) {
		return false
	}
	s.info = Info{Era: EraModern, ProtocolVersion: modernVersion}
	s.info.Instructions, _ = jsonview.GetString(d.result, "instructions")
	caps, _ := jsonview.Get(d.result, "capabilities")
	tools, _ := jsonview.Get(caps, "tools")
	s.info.ListChanged = jsonview.IsTrue(tools, "listChanged")
	meta, _ := jsonview.Get(d.result, "_meta")
	server, _ := jsonview.Get(meta, "io.modelcontextprotocol/serverInfo")
	s.info.Name, _ = jsonview.GetString(server, "name")
	s.info.Version, _ = jsonview.GetString(server, "version")
	s.subscribe()
	return true
}

// modernMeta is what every request of the modern era carries in _meta.
func (s *Session) modernMeta() []byte {
	b := []byte(`"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"writ","version":`)
	b = rawjson.AppendString(b, s.cfg.Version)
	return append(b, `},"io.modelcontextprotocol/clientCapabilities":{"roots":{}}`...)
}

// subscribe asks a modern server to tell when its tools change. The answer comes
// when the subscription ends, so the request lives as long as the session.
func (s *Session) subscribe() {
	if !s.info.ListChanged {
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		_, _ = s.conn.Do(s.ctx, wire.Request{Method: "subscriptions/listen", Params: func(int64) []byte {
			b := append([]byte(`{"_meta":{`), s.modernMeta()...)
			return append(b, `},"notifications":{"toolsListChanged":true}}`...)
		}})
	}()
}

// initialize does the legacy handshake with the SDK, which then also answers what
// the server asks.
func (s *Session) initialize(ctx context.Context) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "writ", Title: "Writ", Version: s.cfg.Version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}},
		Logger:       slog.New(slog.DiscardHandler),
	})
	client.AddReceivingMiddleware(s.answerServer)
	sdk, err := client.Connect(ctx, s.conn.SDKTransport(), &mcp.ClientSessionOptions{ProtocolVersion: legacyVersion})
	if err != nil {
		return err
	}
	s.sdk = sdk
	init := sdk.InitializeResult()
	s.info = Info{Era: EraLegacy, ProtocolVersion: init.ProtocolVersion, Instructions: init.Instructions}
	if init.ServerInfo != nil {
		s.info.Name, s.info.Version = init.ServerInfo.Name, init.ServerInfo.Version
	}
	s.info.ListChanged = init.Capabilities != nil && init.Capabilities.Tools != nil && init.Capabilities.Tools.ListChanged
	return nil
}

// answerServer answers what a legacy server asks of its client: the session's
// folder, a ping, and an honest no to everything else.
func (s *Session) answerServer(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "roots/list":
			s.cfg.RootsRead()
			roots := []*mcp.Root{}
			if uri, name, ok := s.root(); ok {
				roots = append(roots, &mcp.Root{URI: uri, Name: name})
			}
			return &mcp.ListRootsResult{Roots: roots}, nil
		case "sampling/createMessage", "elicitation/create":
			return nil, &jsonrpc.Error{
				Code:    -32000,
				Message: method + " is not offered: Writ gives servers the session's folder and nothing else; do the work without it or answer the call with isError",
			}
		}
		return next(ctx, method, req)
	}
}
