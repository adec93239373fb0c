// Package registry is registry-svc: what exists. It holds the connectors, shows the tools, freezes turns, and answers
// the one question that permission-svc has about tools.
//
// It works alone: without an mcp-host there are only the builtin tools, and without a permission service every tool of
// a server is an external mutation that asks.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/registry-svc/internal/builtin"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/source/mcpjson"
	"github.com/writ-dev/writ/registry-svc/internal/store"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
	"github.com/writ-dev/writ/registry-svc/internal/workspace"
)

// Config is what a person settles. The zero value works: a temporary store, no file, the defaults below.
type Config struct {
	// StorePath is the SQLite file. Empty: a temporary one that Close removes.
	StorePath string
	// MCPFile is an mcp.json in any of its three shapes. Empty, or not there: none.
	MCPFile string
	// Namespace is where the connectors of MCPFile belong to. Empty: "default".
	Namespace string
	// Variables are what ${VAR} in a connector stands for: connector, variable, value. Nothing else is expanded.
	Variables map[string]map[string]string
	// Agents narrows the tools of agents by name. An agent that is not in it has every tool (R26).
	Agents map[string]Agent
	// Forbidden are folders with Writ's own files, such as $WRIT_HOME: no workspace is in, at or above them.
	Forbidden []string
	// WorkspaceRoots are for credentials that have no roots of their own.
	WorkspaceRoots []string
	// DiscoverTimeout bounds the listing of one connector when a turn opens. 0: 30 s.
	DiscoverTimeout time.Duration
	// TestTimeout bounds TestConnector, where a first start may fetch a package. 0: 150 s.
	TestTimeout time.Duration
	// TurnIdle is after what time without a call a turn ends, unless a card is open. 0: 24 h.
	TurnIdle time.Duration
	// SweepEvery is how often idle turns are looked for. 0: 1 min.
	SweepEvery time.Duration
	// Limits are the bounds of this service.
	Limits Limits
}

// Agent narrows an agent's tools. Patterns are canonical ids, "mcp.<server>.*", or "*". A tool has to match one of
// Tools, where there are any, and none of Deny.
type Agent struct {
	Tools []string
	Deny  []string
}

// Limits are bounds by the names of docs/limits.md. 0 stands for the default.
type Limits struct {
	OpenTurns         int   // open_turns_max, per principal: 1000
	ToolsPerTurn      int   // tools_per_turn_max: 2000
	DefinitionBytes   int64 // turn_definitions_max_bytes: 16 MiB
	InlineDefinitions int64 // turn_inline_definitions_max_bytes, in one answer: 3 MiB
	Connectors        int   // connectors_max, per namespace: 256
}

func (c Config) withDefaults() Config {
	def(&c.Namespace, "default")
	def(&c.DiscoverTimeout, 30*time.Second)
	def(&c.TestTimeout, 150*time.Second)
	def(&c.TurnIdle, 24*time.Hour)
	def(&c.SweepEvery, time.Minute)
	def(&c.Limits.OpenTurns, 1000)
	def(&c.Limits.ToolsPerTurn, 2000)
	def(&c.Limits.DefinitionBytes, 16<<20)
	def(&c.Limits.InlineDefinitions, 3<<20)
	def(&c.Limits.Connectors, 256)
	return c
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Clients are the peers. Each may be nil.
type Clients struct {
	// Servers is mcp-host, which starts and lists the connectors.
	Servers mcphostv1.ServerServiceClient
	// Settings is permission, which classifies the tools of a turn. Without it every tool of a server is an external
	// mutation, and the highest mode is Manual.
	Settings permissionv1.SettingsServiceClient
	// Cards is permission: a turn that ends cancels its open cards, and one with an open card is not idle.
	Cards permissionv1.CardServiceClient
}

// Option sets a dependency.
type Option func(*Server)

// WithLogger sets the logger.
func WithLogger(l *slog.Logger) Option { return func(s *Server) { s.log = l } }

// WithTracerProvider sets where spans go.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *Server) { s.tracer = p.Tracer("github.com/writ-dev/writ/registry-svc") }
}

// WithClock sets the clock.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithClients sets the peers.
func WithClients(c Clients) Option { return func(s *Server) { s.clients = c } }

// Server is registry-svc.
type Server struct {
	cfg     Config
	log     *slog.Logger
	tracer  trace.Tracer
	now     func() time.Time
	clients Clients

	store      store.Store
	manifest   []builtin.Tool
	connectors *connector.Registry
	turns      *turn.Manager
	folders    workspace.Rules
	closeOnce  sync.Once
	closeErr   error
}

// New opens the store and reads the configuration. A malformed entry of MCPFile is an error in the log and a connector
// in state ERROR; the rest goes on. It talks to no peer.
func New(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	s := &Server{
		cfg: cfg.withDefaults(), log: slog.New(slog.DiscardHandler), now: time.Now,
		tracer: noop.NewTracerProvider().Tracer(""), folders: workspace.Rules{Forbidden: cfg.Forbidden},
	}
	for _, o := range opts {
		o(s)
	}
	agents := map[string]turn.Agent{}
	for name, a := range cfg.Agents {
		agents[name] = turn.Agent(a)
	}
	if err := turn.CheckAgents(agents); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var err error
	if s.manifest, err = builtin.Manifest(); err != nil {
		return nil, err
	}
	if s.store, err = store.OpenSQLite(ctx, cfg.StorePath); err != nil {
		return nil, err
	}
	if err = s.assemble(ctx, agents); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	return s, nil
}

func (s *Server) assemble(ctx context.Context, agents map[string]turn.Agent) (err error) {
	s.connectors, err = connector.New(ctx, connector.Options{
		Host: s.host(), Store: s.store, Log: s.log, Now: s.now, Variables: s.cfg.Variables, Max: s.cfg.Limits.Connectors,
	}, s.fromFile())
	if err != nil {
		return err
	}
	s.turns = turn.NewManager(turn.Options{
		Store: s.store, Connectors: s.connectors, Classifier: s.classifier(), Cards: s.cards(), Manifest: s.manifest, Agents: agents,
		Limits:          turn.Limits{Tools: s.cfg.Limits.ToolsPerTurn, Definitions: s.cfg.Limits.DefinitionBytes, Open: s.cfg.Limits.OpenTurns},
		DiscoverTimeout: s.cfg.DiscoverTimeout, Idle: s.cfg.TurnIdle, Encode: encodeStatus, Log: s.log, Now: s.now,
	})
	return nil
}

// fromFile reads MCPFile. What is wrong with the file as a whole stands in a connector that has the file's name, so that
// it is seen where connectors are looked at.
func (s *Server) fromFile() []connector.Connector {
	if s.cfg.MCPFile == "" {
		return nil
	}
	file := mcpjson.Load(s.cfg.MCPFile, s.cfg.Variables)
	var out []connector.Connector
	for _, p := range file.Problems {
		s.log.Error("registry.configuration_invalid", "file", p.File, "line", p.Line, "column", p.Column, "entry", p.Entry, "field", p.Field, "problem", p.String())
		if p.Entry == "" && len(out) == 0 {
			out = append(out, connector.Connector{
				Key:    connector.Key{Namespace: s.cfg.Namespace, Name: filepath.Base(s.cfg.MCPFile)},
				Source: connector.FromFile, Place: s.cfg.MCPFile, Broken: p.String(),
			})
		}
	}
	for _, e := range file.Entries {
		c := connector.Connector{
			Key: connector.Key{Namespace: s.cfg.Namespace, Name: e.Name}, Spec: e.Spec, Enabled: e.Enabled,
			Source: connector.FromFile, Place: e.Place,
		}
		if len(e.Problems) > 0 {
			c.Broken = e.Problems[0].String()
			if n := len(e.Problems) - 1; n > 0 {
				c.Broken += fmt.Sprintf(" (and %d more: `writ config check`)", n)
			}
		}
		out = append(out, c)
	}
	return out
}

// Register registers the services.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	registryv1.RegisterConnectorServiceServer(r, &connectorService{Server: s})
	registryv1.RegisterToolServiceServer(r, &toolService{Server: s})
	registryv1.RegisterTurnServiceServer(r, &turnService{Server: s})
	registryv1.RegisterResolverServiceServer(r, &resolverService{Server: s})
}

// ServiceNames are the services that Register registers.
func (s *Server) ServiceNames() []string {
	return []string{
		registryv1.ConnectorService_ServiceDesc.ServiceName, registryv1.ToolService_ServiceDesc.ServiceName,
		registryv1.TurnService_ServiceDesc.ServiceName, registryv1.ResolverService_ServiceDesc.ServiceName,
	}
}

// Run keeps mcp-host in step and ends idle turns until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.connectors.Run(ctx) })
	wg.Go(func() { s.sweep(ctx) })
	wg.Wait()
	return nil
}

func (s *Server) sweep(ctx context.Context) {
	tick := time.NewTicker(s.cfg.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.turns.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("registry.sweep", "error", err)
			}
		}
	}
}

// Health tells whether the store can be read.
func (s *Server) Health(ctx context.Context) error { return s.store.Ping(ctx) }

// Close ends watches and closes the store. Run must have returned.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		s.turns.Hub.Close()
		s.closeErr = errors.Join(s.turns.Flush(ctx), s.store.Close())
	})
	return s.closeErr
}

// LimitValues are the bounds in force by their names in docs/limits.md, for GetServerInfo.
func (s *Server) LimitValues() map[string]int64 {
	l := s.cfg.Limits
	return map[string]int64{
		"open_turns_max": int64(l.OpenTurns), "tools_per_turn_max": int64(l.ToolsPerTurn), "turn_definitions_max_bytes": l.DefinitionBytes,
		"turn_inline_definitions_max_bytes": l.InlineDefinitions, "connectors_max": int64(l.Connectors),
		"tool_definition_max_bytes": connector.MaxDefinition, "tool_name_max_bytes": connector.MaxToolName, "mcp_json_max_bytes": mcpjson.MaxBytes,
		"discover_timeout_ms": s.cfg.DiscoverTimeout.Milliseconds(), "turn_idle_ms": s.cfg.TurnIdle.Milliseconds(),
	}
}
