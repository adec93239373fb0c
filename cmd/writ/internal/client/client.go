// Package client connects the command line to a running server: it finds the address and the credential, and holds the
// generated clients.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/home"
)

// The environment variables by which a client finds a server and its credential.
const (
	EnvAddr  = "WRIT_ADDR"
	EnvToken = "WRIT_TOKEN"
)

// ErrNoServer says that nobody listens at the address.
var ErrNoServer = errors.New("no server")

// Role is whose credential a connection uses.
type Role string

// The two credentials of the embedded form.
const (
	Caller   Role = "caller"
	Approver Role = "approver"
)

// Finder knows where the server and the credentials are.
type Finder struct {
	// Home is $WRIT_HOME.
	Home home.Layout
	// Addr overrides the home's socket: "unix:PATH" or "HOST:PORT".
	Addr string
	// Token overrides the home's token files for every role.
	Token string
}

// Find reads flags (empty: not given) and the environment.
func Find(homeFlag, addrFlag string) (Finder, error) {
	root := homeFlag
	if root == "" {
		var err error
		if root, err = home.Default(); err != nil {
			return Finder{}, err
		}
	}
	f := Finder{Home: home.Layout{Root: root}, Addr: addrFlag, Token: os.Getenv(EnvToken)}
	if f.Addr == "" {
		f.Addr = os.Getenv(EnvAddr)
	}
	return f, nil
}

// Target is the address in gRPC's form.
func (f Finder) Target() string {
	addr := f.Addr
	if addr == "" {
		addr = "unix:" + f.Home.Socket()
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix:" + path
	}
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		addr = u.Host
	}
	return "dns:///" + addr
}

// TokenOf reads the bearer token of a role.
func (f Finder) TokenOf(role Role) (string, error) {
	if f.Token != "" {
		return f.Token, nil
	}
	b, err := home.ReadPrivate(f.Home.TokenFile(string(role)))
	if err != nil {
		return "", fmt.Errorf("the %s's credential: %w", role, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Has tells whether the credential of a role can be read here.
func (f Finder) Has(role Role) bool {
	_, err := f.TokenOf(role)
	return err == nil
}

// Conn is a connection with one credential.
type Conn struct {
	conn *grpc.ClientConn

	Info           commonv1.ServerInfoServiceClient
	Connectors     registryv1.ConnectorServiceClient
	Tools          registryv1.ToolServiceClient
	Turns          registryv1.TurnServiceClient
	Authorization  permissionv1.AuthorizationServiceClient
	Cards          permissionv1.CardServiceClient
	Grants         permissionv1.GrantServiceClient
	Settings       permissionv1.SettingsServiceClient
	Servers        mcphostv1.ServerServiceClient
	Capabilities   execv1.CapabilityServiceClient
	Calls          gatewayv1.CallServiceClient
	Receipts       evidencev1.ReceiptServiceClient
	Blobs          evidencev1.BlobServiceClient
	Traces         evidencev1.TraceServiceClient
	ClientIdentity Role
}

// Dial connects with a role's credential. It does not wait for the server; the first call does.
func (f Finder) Dial(role Role, opts ...grpc.DialOption) (*Conn, error) {
	token, err := f.TokenOf(role)
	if err != nil {
		return nil, err
	}
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(token)),
	}, opts...)
	conn, err := grpc.NewClient(f.Target(), opts...)
	if err != nil {
		return nil, err
	}
	return &Conn{
		conn: conn, ClientIdentity: role,
		Info:       commonv1.NewServerInfoServiceClient(conn),
		Connectors: registryv1.NewConnectorServiceClient(conn), Tools: registryv1.NewToolServiceClient(conn), Turns: registryv1.NewTurnServiceClient(conn),
		Authorization: permissionv1.NewAuthorizationServiceClient(conn), Cards: permissionv1.NewCardServiceClient(conn),
		Grants: permissionv1.NewGrantServiceClient(conn), Settings: permissionv1.NewSettingsServiceClient(conn),
		Servers: mcphostv1.NewServerServiceClient(conn), Capabilities: execv1.NewCapabilityServiceClient(conn), Calls: gatewayv1.NewCallServiceClient(conn),
		Receipts: evidencev1.NewReceiptServiceClient(conn), Blobs: evidencev1.NewBlobServiceClient(conn), Traces: evidencev1.NewTraceServiceClient(conn),
	}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// bearer is a token on a loopback or unix connection. Finder speaks no TLS yet: a token never leaves the machine with it.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (b bearer) RequireTransportSecurity() bool { return false }
