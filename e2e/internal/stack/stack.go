package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
)

// Patience bounds everything that a test waits for: a server that starts, a process that ends.
const Patience = 30 * time.Second

// Stack is a running server and its home.
type Stack struct {
	// Home is $WRIT_HOME.
	Home *home.Home
	// Deployment is the deployment's id.
	Deployment string

	t      testing.TB
	pool   *pool
	listen []string
	args   []string
	env    []string
	cmd    *exec.Cmd
	gone   chan struct{} // closed when the server's process has ended
	family map[process]bool
}

// Option changes how the server is started.
type Option func(*Stack)

// WithArgs adds flags to `writ up`.
func WithArgs(args ...string) Option { return func(s *Stack) { s.args = append(s.args, args...) } }

// WithEnv adds a variable to the server's environment.
func WithEnv(variable string) Option { return func(s *Stack) { s.env = append(s.env, variable) } }

// ListenAsConfigured leaves it to the configuration where the server listens beside the socket; without it: nowhere.
func ListenAsConfigured() Option { return func(s *Stack) { s.listen = nil } }

// WithConfig puts a writ.yaml into the home.
func WithConfig(content string) Option {
	return func(s *Stack) { s.write(s.Home.ConfigFile(), content) }
}

// New prepares a home with the credentials caller, approver, other (a second caller) and service, and starts nothing.
func New(t testing.TB, opts ...Option) *Stack {
	t.Helper()
	root, err := os.MkdirTemp("", "w") // not t.TempDir: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	s := &Stack{t: t, pool: &pool{clients: map[string]*Client{}}, listen: []string{"--listen", "none"}, family: map[process]bool{}}
	t.Cleanup(func() {
		s.Stop()
		s.pool.close()
		if t.Failed() {
			t.Logf("server log:\n%s", s.Log())
		}
		if err := os.RemoveAll(root); err != nil {
			t.Errorf("the home can't be removed, something still writes into it: %v", err)
		}
	})
	if s.Home, err = home.Open(root); err != nil {
		t.Fatal(err)
	}
	if s.Deployment, err = s.Home.DeploymentID(); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.EmbeddedTokens(s.Home); err != nil {
		t.Fatal(err)
	}
	s.addCredentials()
	for _, o := range opts {
		o(s)
	}
	return s
}

// Start is New and Up.
func Start(t testing.TB, opts ...Option) *Stack {
	t.Helper()
	s := New(t, opts...)
	s.Up()
	return s
}

func (s *Stack) write(path, content string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Up starts `writ up` and waits until it says that it serves.
func (s *Stack) Up() {
	s.t.Helper()
	if err := s.TryUp(); err != nil {
		s.t.Fatalf("%v\n%s", err, s.Log())
	}
}

// TryUp is Up for a server that may refuse to start.
func (s *Stack) TryUp() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(Program(s.t, "writ"), slices.Concat([]string{"up", "--home", s.Home.Root}, s.listen, s.args)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Dir = s.Home.Root
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // how it ended is asked where it matters
	}()
	s.cmd, s.gone = cmd, gone
	return s.healthy()
}

func (s *Stack) healthy() error {
	conn := s.dial("caller")
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(false))
		if err == nil && answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		select {
		case <-s.gone:
			return fmt.Errorf("`writ up` ended at once: %s", s.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("`writ up` does not serve within %s: %v %w", Patience, answer, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// T is the test that the stack belongs to.
func (s *Stack) T() testing.TB { return s.t }

// In is the stack for a subtest, which fails in place of the test that started it. It does not start or stop.
func (s *Stack) In(t testing.TB) *Stack {
	inner := *s
	inner.t = t
	return &inner
}

// PID is the server's process id.
func (s *Stack) PID() int { return s.cmd.Process.Pid }

// Stop ends the server in order and fails the test when a process that it started is still there.
func (s *Stack) Stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	s.end(syscall.SIGTERM)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 && s.cmd.ProcessState.Exited() {
		s.t.Errorf("`writ up` ended with %d", code)
	}
	s.cmd = nil
	s.NothingLeft()
}

// WriteMCPFile puts an mcp.json into the home. Before Up.
func (s *Stack) WriteMCPFile(content string) {
	s.t.Helper()
	s.write(filepath.Join(s.Home.Root, "mcp.json"), content)
}

// Refused notes that the server ended by itself, and fails the test when it did not, or said that all was well.
func (s *Stack) Refused() {
	s.t.Helper()
	select {
	case <-s.gone:
		if s.cmd.ProcessState.Success() {
			s.t.Error("`writ up` ended with 0")
		}
		s.cmd = nil
	case <-time.After(Patience):
		s.t.Error("`writ up` is still there")
	}
}

// Kill9 kills the server without a warning.
func (s *Stack) Kill9() {
	s.t.Helper()
	s.end(syscall.SIGKILL)
	s.cmd = nil
}

// Restart is Kill9, the proof that no process was left, and Up.
func (s *Stack) Restart() {
	s.t.Helper()
	s.Kill9()
	s.NothingLeft()
	s.Up()
}

func (s *Stack) end(sig syscall.Signal) {
	s.t.Helper()
	s.remember()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("signal %v: %v", sig, err)
	}
	select {
	case <-s.gone:
	case <-time.After(Patience):
		s.t.Errorf("`writ up` did not end within %s of %v", Patience, sig)
		_ = s.cmd.Process.Kill()
		<-s.gone
	}
}

func (s *Stack) logFile() string { return filepath.Join(s.Home.LogDir(), "e2e.log") }

// Log is what the server wrote.
func (s *Stack) Log() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	const most = 64 << 10
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}

func (s *Stack) dial(credential string) *grpc.ClientConn {
	s.t.Helper()
	token, err := auth.ReadToken(s.Home.TokenFile(credential))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.connect(token, grpc.WithChainUnaryInterceptor(auth.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(auth.StreamClientInterceptor()))
}

// connect connects with a token; "" sends none.
func (s *Stack) connect(token string, opts ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quickReconnect()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(auth.Token(token, false)))
	}
	conn, err := grpc.NewClient("unix:"+s.Home.Socket(), opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.pool.keep(conn)
	return conn
}
