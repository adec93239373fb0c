// Package client connects the command line to a running server: it finds the address and the credential, and holds the
// generated clients.
package client

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"google.golang.org/grpc"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/server"
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
	Caller   Role = auth.CallerToken
	Approver Role = auth.ApproverToken
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
	token, err := auth.ReadToken(f.Home.TokenFile(string(role)))
	if err != nil {
		return "", fmt.Errorf("the %s's credential: %w", role, err)
	}
	return token, nil
}

// Has tells whether the credential of a role can be read here.
func (f Finder) Has(role Role) bool {
	_, err := f.TokenOf(role)
	return err == nil
}

// Conn is a connection with one credential.
type Conn struct {
	conn *grpc.ClientConn

	Info       commonv1.ServerInfoServiceClient
	Connectors registryv1.ConnectorServiceClient
	Tools      registryv1.ToolServiceClient
	Turns      registryv1.TurnServiceClient
	Cards      permissionv1.CardServiceClient
	Grants     permissionv1.GrantServiceClient
	Settings   permissionv1.SettingsServiceClient
	Calls      gatewayv1.CallServiceClient
	Receipts   evidencev1.ReceiptServiceClient
	Traces     evidencev1.TraceServiceClient
}

// Dial connects with a role's credential, without TLS: to a unix socket or to loopback. It does not wait for the server;
// the first call does.
func (f Finder) Dial(role Role) (*Conn, error) {
	token, err := f.TokenOf(role)
	if err != nil {
		return nil, err
	}
	conn, err := server.Dial(f.Target(), server.DialOptions{Token: token})
	if err != nil {
		return nil, err
	}
	return &Conn{
		conn: conn,
		Info: commonv1.NewServerInfoServiceClient(conn), Connectors: registryv1.NewConnectorServiceClient(conn),
		Tools: registryv1.NewToolServiceClient(conn), Turns: registryv1.NewTurnServiceClient(conn),
		Cards: permissionv1.NewCardServiceClient(conn), Grants: permissionv1.NewGrantServiceClient(conn),
		Settings: permissionv1.NewSettingsServiceClient(conn), Calls: gatewayv1.NewCallServiceClient(conn),
		Receipts: evidencev1.NewReceiptServiceClient(conn), Traces: evidencev1.NewTraceServiceClient(conn),
	}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }
