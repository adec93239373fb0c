package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
)

// Client holds the generated clients of one connection with one credential.
type Client struct {
	Conn *grpc.ClientConn

	Info          commonv1.ServerInfoServiceClient
	Connectors    registryv1.ConnectorServiceClient
	Tools         registryv1.ToolServiceClient
	Turns         registryv1.TurnServiceClient
	Authorization permissionv1.AuthorizationServiceClient
	Cards         permissionv1.CardServiceClient
	Grants        permissionv1.GrantServiceClient
	Settings      permissionv1.SettingsServiceClient
	MCPHost       mcphostv1.ExecutionServiceClient
	Servers       mcphostv1.ServerServiceClient
	Exec          execv1.RunServiceClient
	Calls         gatewayv1.CallServiceClient
	Claims        evidencev1.ClaimServiceClient
	Receipts      evidencev1.ReceiptServiceClient
	Traces        evidencev1.TraceServiceClient
}

// The credentials of a Stack.
const (
	Caller   = auth.CallerToken   // an agent, role caller
	Approver = auth.ApproverToken // the person at the machine: caller, approver, operator
	Other    = "other"            // another agent, role caller
	Service  = "service"          // role service, as one of Writ's own services outside of the process
)

// Client is the connection with a credential. Calls wait for a server that restarts.
func (s *Stack) Client(credential string) *Client {
	s.t.Helper()
	s.pool.mu.Lock()
	c := s.pool.clients[credential]
	s.pool.mu.Unlock()
	if c != nil {
		return c
	}
	c = clients(s.dial(credential))
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.clients[credential] = c
	return c
}

// pool holds the connections of a stack, which its subtests share. They are closed when the stack is.
type pool struct {
	mu      sync.Mutex
	clients map[string]*Client
	conns   []*grpc.ClientConn
}

func (p *pool) keep(conn *grpc.ClientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// Bare is Client without the kit's interceptors: what a client of somebody else's would send.
func (s *Stack) Bare(credential string) *Client {
	s.t.Helper()
	token, err := auth.ReadToken(s.Home.TokenFile(credential))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.WithToken(token)
}

// WithToken connects with any token; "" sends none.
func (s *Stack) WithToken(token string) *Client {
	s.t.Helper()
	return clients(s.connect(token))
}

func clients(conn *grpc.ClientConn) *Client {
	return &Client{
		Conn: conn, Info: commonv1.NewServerInfoServiceClient(conn),
		Connectors: registryv1.NewConnectorServiceClient(conn), Tools: registryv1.NewToolServiceClient(conn), Turns: registryv1.NewTurnServiceClient(conn),
		Authorization: permissionv1.NewAuthorizationServiceClient(conn), Cards: permissionv1.NewCardServiceClient(conn),
		Grants: permissionv1.NewGrantServiceClient(conn), Settings: permissionv1.NewSettingsServiceClient(conn),
		MCPHost: mcphostv1.NewExecutionServiceClient(conn), Servers: mcphostv1.NewServerServiceClient(conn), Exec: execv1.NewRunServiceClient(conn),
		Calls: gatewayv1.NewCallServiceClient(conn), Claims: evidencev1.NewClaimServiceClient(conn),
		Receipts: evidencev1.NewReceiptServiceClient(conn), Traces: evidencev1.NewTraceServiceClient(conn),
	}
}

func quickReconnect() grpc.ConnectParams {
	return grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}
}

// Context ends with the test, and after a minute.
func (s *Stack) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}

// addCredentials puts the credentials that the embedded form does not make into its table.
func (s *Stack) addCredentials() {
	s.t.Helper()
	b, err := home.ReadPrivate(s.Home.CredentialsFile())
	if err != nil {
		s.t.Fatal(err)
	}
	var table struct {
		Version     int              `json:"version"`
		Credentials []map[string]any `json:"credentials"`
	}
	if err := json.Unmarshal(b, &table); err != nil {
		s.t.Fatal(err)
	}
	for _, row := range []map[string]any{
		{"id": Other, "principal": "mallory", "kind": "agent", "roles": []string{"caller"}, "max_mode": "auto"},
		{"id": Service, "principal": "e2e", "kind": "service", "roles": []string{"service"}, "max_mode": "manual"},
	} {
		token := auth.NewToken()
		sum := sha256.Sum256([]byte(token))
		row["sha256"], row["agents"], row["workspace_roots"] = hex.EncodeToString(sum[:]), []string{auth.Any}, []string{auth.Any}
		if row["id"] != Service { // services serve every namespace
			row["namespace"] = auth.DefaultNamespace
		}
		table.Credentials = append(table.Credentials, row)
		if err := home.CreatePrivate(s.Home.TokenFile(row["id"].(string)), []byte(token+"\n")); err != nil {
			s.t.Fatal(err)
		}
	}
	if b, err = json.Marshal(table); err != nil {
		s.t.Fatal(err)
	}
	if err := home.ReplacePrivate(s.Home.CredentialsFile(), b); err != nil {
		s.t.Fatal(err)
	}
}

// AddConnector adds and enables an MCP server, as the operator.
func (s *Stack) AddConnector(name, program string, args ...string) *registryv1.Connector {
	s.t.Helper()
	return s.AddConnectorSpec(&registryv1.Connector{Name: name, Command: program, Args: args})
}

// AddConnectorSpec is AddConnector for one with more to it.
func (s *Stack) AddConnectorSpec(c *registryv1.Connector) *registryv1.Connector {
	s.t.Helper()
	c.Transport, c.Enabled = registryv1.Transport_TRANSPORT_STDIO, true
	answer, err := s.Client(Approver).Connectors.CreateConnector(s.Context(), &registryv1.CreateConnectorRequest{Connector: c})
	if err != nil {
		s.t.Fatalf("add connector %s: %v", c.GetName(), err)
	}
	return answer.GetConnector()
}

// Settle sets class and disposition of a tool, as the operator. It acts from the next turn on.
func (s *Stack) Settle(tool string, class commonv1.SecurityClass, d commonv1.Disposition, providerDigest string) {
	s.t.Helper()
	_, err := s.Client(Approver).Settings.SetDisposition(s.Context(), &permissionv1.SetDispositionRequest{
		Setting: &permissionv1.ToolSetting{Tool: tool, Class: class, Disposition: d, ProviderDigest: providerDigest},
	})
	if err != nil {
		s.t.Fatalf("settle %s: %v", tool, err)
	}
}

// OpenTurn opens a turn as the caller.
func (s *Stack) OpenTurn(req *registryv1.OpenTurnRequest) *registryv1.Turn {
	s.t.Helper()
	answer, err := s.Client(Caller).Turns.OpenTurn(s.Context(), req)
	if err != nil {
		s.t.Fatalf("open turn: %v", err)
	}
	for _, p := range answer.GetTurn().GetProblems() {
		s.t.Logf("turn %s left out %s: %v", answer.GetTurn().GetId(), p.GetProvider(), p.GetStatus())
	}
	return answer.GetTurn()
}

// Workspace makes a folder that may be a turn's workspace, readable for MCP servers too.
func (s *Stack) Workspace() string {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// Tool finds a tool in a turn.
func Tool(turn *registryv1.Turn, id string) *registryv1.TurnTool {
	for _, tool := range turn.GetTools() {
		if tool.GetTool().GetIdentity().GetTool() == id {
			return tool
		}
	}
	return nil
}
