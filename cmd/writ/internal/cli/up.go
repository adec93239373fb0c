package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/allinone"
	"github.com/writ-dev/writ/cmd/writ/internal/client"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/config"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
)

// gcPercent lets the heap of a server that holds a few MiB grow to a few more before it is collected: collections were
// an eighth of the time of a call.
const gcPercent = 400

// startPatience is how long `writ up -d` waits for the server to answer.
const startPatience = 30 * time.Second

func (a *app) upCommand() *cobra.Command {
	var detach bool
	var listen, mcpFile string
	cmd := &cobra.Command{
		Use: "up", Short: "start the server: six services in one process", Args: cobra.NoArgs,
		Long: "Starts the server on the home folder and stays in the foreground; with -d it goes to the background. It listens on a\n" +
			"unix socket and on 127.0.0.1:7410. Ctrl-C, or `writ down`, stops it: running commands are ended and recorded first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if detach {
				return a.upDetached(cmd.Context())
			}
			conf, err := a.configuration(listen, mcpFile)
			if err != nil {
				return err
			}
			return a.up(cmd.Context(), conf)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "go to the background")
	cmd.Flags().StringVar(&listen, "listen", "", "TCP address beside the socket; \"none\" for none (default 127.0.0.1:7410)")
	cmd.Flags().StringVar(&mcpFile, "mcp-file", "", "the operator's mcp.json (default mcp.json in the home)")
	return cmd
}

func (a *app) up(ctx context.Context, conf configuration) error {
	if err := sandbox.SetUndumpable(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	h, err := home.Open(conf.home.Root)
	if err != nil {
		return err
	}
	log, err := logger(a.Err, conf.Log)
	if err != nil {
		return err
	}
	s, err := allinone.New(ctx, allinone.Config{Home: h, Settings: conf.Writ, Version: Version, Logger: log})
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		return errors.Join(err, s.Run(cancelled()))
	}
	a.banner(h.Root, os.Getpid(), s.Addresses(), s.Isolation())
	return s.Run(ctx)
}

func logger(w io.Writer, l config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (a *app) banner(root string, pid int, addresses, isolation []string) {
	if a.json {
		return
	}
	a.Line("Writ %s  %s  pid %d", Version, tilde(root), pid)
	for i, addr := range addresses {
		addresses[i] = strings.ReplaceAll(addr, root, tilde(root))
	}
	a.Line("  gRPC  %s      agents: writ mcp", strings.Join(addresses, " · "))
	a.Line("  isolation  %s", strings.Join(isolation, " · "))
	a.Line("  approve with  writ cards                       stop with  writ down")
}

func tilde(path string) string {
	if user, err := os.UserHomeDir(); err == nil && strings.HasPrefix(path, user+"/") {
		return "~" + path[len(user):]
	}
	return path
}

// upDetached starts the same program again in a session of its own, with its log in a file, and waits until it answers.
func (a *app) upDetached(ctx context.Context) error {
	f, err := client.Find(a.homeFlag, a.addrFlag)
	if err != nil {
		return err
	}
	h, err := home.Open(f.Home.Root)
	if err != nil {
		return err
	}
	if pid := h.Holder(); pid != 0 {
		a.Line("already running, pid %d", pid)
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	logPath := filepath.Join(h.LogDir(), "writ.log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	args := []string{"up"}
	for i, arg := range os.Args[1:] { // the same flags, without those that say "in the background"
		if arg == "-d" || arg == "--detach" || arg == "--detach=true" || arg == "up" && !contains(os.Args[1:i+1], "up") {
			continue
		}
		args = append(args, arg)
	}
	child := exec.Command(self, args...)
	child.Stdout, child.Stderr = logFile, logFile
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { gone <- child.Wait() }()
	deadline := time.Now().Add(startPatience)
	for {
		if info, err := a.info(ctx); err == nil {
			a.banner(h.Root, child.Process.Pid, []string{strings.TrimPrefix(f.Target(), "dns:///")}, info.GetIsolation())
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("the server ended at once:\n%s  see %s", tail(logPath, 5), logPath)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server did not answer within %s; see %s", startPatience, logPath)
		}
	}
}

func contains(words []string, w string) bool {
	for _, x := range words {
		if x == w {
			return true
		}
	}
	return false
}

func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ") + "\n"
}

func (a *app) info(ctx context.Context) (*commonv1.GetServerInfoResponse, error) {
	conn, err := a.dial(client.Caller)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return conn.Info.GetServerInfo(ctx, &commonv1.GetServerInfoRequest{})
}

func (a *app) downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "stop the server on this home", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := client.Find(a.homeFlag, a.addrFlag)
			if err != nil {
				return err
			}
			pid := f.Home.Holder()
			if pid == 0 {
				a.Line("no server runs on %s", tilde(f.Home.Root))
				return nil
			}
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				return fmt.Errorf("pid %d: %w", pid, err)
			}
			for deadline := time.Now().Add(startPatience); f.Home.Holder() == pid; {
				if time.Now().After(deadline) {
					return fmt.Errorf("pid %d is still there after %s; see %s", pid, startPatience, filepath.Join(f.Home.LogDir(), "writ.log"))
				}
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-time.After(50 * time.Millisecond):
				}
			}
			a.Line("stopped pid %d", pid)
			return nil
		},
	}
}

func (a *app) mcpCommand() *cobra.Command {
	var f turnFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "mcp", Short: "be an MCP server over standard input and output, for any MCP client", Args: cobra.NoArgs,
		Long: "Serves the tools of a turn to an MCP client, with the caller's credential. Standard output carries the protocol only.\n\n" +
			"Configure a client with  command: writ, args: [mcp].",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd.Context(), f, wait) },
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&wait, "card-wait", 20*time.Second, "how long a call waits for a person before it answers that it is pending")
	return cmd
}
