// Package cli is the command line. One file per noun; what they share is here: flags, connections, exit codes, errors.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// Version is the release; the build sets it.
var Version = "devel"

// The exit codes, as docs/cli.md lists them.
const (
	ExitOK          = 0 // done
	ExitFailed      = 1 // unexpected
	ExitUsage       = 2 // wrong words or arguments
	ExitToolError   = 3 // the tool answered that it failed
	ExitDenied      = 4 // permission said no, or the call was cancelled
	ExitRefused     = 5 // an executor refused, or the answer came too late
	ExitUnknown     = 6 // begun, and nobody can say how it ended
	ExitPending     = 7 // waits for a person
	ExitUnavailable = 8 // no server
)

// Streams are what a run reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Standard are the process's own.
func Standard() Streams { return Streams{os.Stdin, os.Stdout, os.Stderr} }

// exit is an error that only carries a code: what there was to say has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// usage is an error in the words of the command line.
type usage struct{ error }

func usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// app is one run of the command line.
type app struct {
	streams            Streams
	homeFlag, addrFlag string
	json               bool
	*ui.Printer
}

// Main runs the command line and returns its exit code.
func Main(args []string, streams Streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{streams: streams}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if a.Printer == nil {
		a.Printer = ui.New(streams.Out, streams.Err, a.json)
	}
	return a.finish(ctx, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "writ",
		Short:         "Tools for AI agents, with proof of every call",
		Long:          "Writ lets an agent use tools from software that nobody reviewed, and proves for every call which contract the\nmodel saw, who allowed it, what it could reach, and what came back.\n\nBegin with `writ up -d`, then `writ connector add`, then `writ call`.",
		SilenceErrors: true, SilenceUsage: true, Version: Version,
		PersistentPreRun: func(*cobra.Command, []string) { a.Printer = ui.New(a.streams.Out, a.streams.Err, a.json) },
	}
	root.PersistentFlags().StringVar(&a.homeFlag, "home", "", "the home folder (default $WRIT_HOME, or ~/.writ)")
	root.PersistentFlags().StringVar(&a.addrFlag, "addr", "", "the server: unix:PATH or HOST:PORT (default $WRIT_ADDR, or the home's socket)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print the contract's messages as JSON, one a line")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage{err} })
	root.AddCommand(
		a.upCommand(), a.downCommand(), a.connectorCommand(), a.pluginCommand(), a.turnCommand(), a.callCommand(), a.callsCommand(),
		a.cardsCommand(), a.grantsCommand(), a.settingsCommand(), a.receiptCommand(), a.traceCommand(), a.runCommand(), a.doctorCommand(),
		a.configCommand(), a.tokenCommand(), a.mcpCommand(),
	)
	return root
}

// finish turns an error into words on standard error and an exit code.
func (a *app) finish(ctx context.Context, err error) int {
	var code exit
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &code):
		return int(code)
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled):
		a.Note("interrupted")
		return 130
	}
	if a.json {
		a.jsonError(err)
	} else {
		a.explain(err)
	}
	return codeOf(err)
}

func codeOf(err error) int {
	var u usage
	if errors.As(err, &u) || strings.HasPrefix(err.Error(), "unknown command") || strings.Contains(err.Error(), " arg(s)") {
		return ExitUsage
	}
	if errors.Is(err, client.ErrNoServer) {
		return ExitUnavailable
	}
	st, ok := status.FromError(err)
	if !ok {
		return ExitFailed
	}
	switch st.Code() {
	case codes.InvalidArgument:
		return ExitUsage
	case codes.PermissionDenied, codes.Unauthenticated:
		return ExitDenied
	case codes.Unavailable:
		return ExitUnavailable
	}
	return ExitFailed
}

// explain says what happened to what, why, and what next.
func (a *app) explain(err error) {
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.Unknown && errs.ReasonOf(err) == "" {
		a.Note("%s %s", a.Bad("error:"), ui.Safe(err.Error(), true))
		return
	}
	a.explainStatus(st)
}

func (a *app) explainStatus(st *status.Status) {
	if st.Code() == codes.Unavailable && errs.ReasonOf(st.Err()) == "" {
		a.Note("%s nobody answers at %s", a.Bad("error:"), a.where())
		a.Note("  start it with  writ up -d")
		return
	}
	a.Note("%s %s", a.Bad("error:"), ui.Safe(st.Message(), true))
	meta := errs.Metadata(st.Err())
	for _, key := range []string{"field", "limit_name", "limit", "got", "seen", "now", "errno", "searched", "stderr"} {
		if v := meta[key]; v != "" {
			a.Note("  %-8s %s", strings.TrimSuffix(key, "_name"), ui.Safe(v, true))
		}
	}
	next, reason := meta["next"], errs.ReasonOf(st.Err())
	switch {
	case next != "":
		a.Note("  %s  %s", ui.Safe(next, false), a.Dim(reason))
	case reason != "":
		a.Note("  %s", a.Dim(reason))
	}
}

func (a *app) jsonError(err error) {
	st := status.Convert(err)
	if perr := (&ui.Printer{Out: a.Err}).Message(st.Proto()); perr != nil {
		a.Note("%v", err)
	}
}

func (a *app) where() string {
	f, err := client.Find(a.homeFlag, a.addrFlag)
	if err != nil {
		return "an unknown address"
	}
	return strings.TrimPrefix(f.Target(), "dns:///")
}

// dial connects with a role's credential.
func (a *app) dial(role client.Role) (*client.Conn, error) {
	f, err := client.Find(a.homeFlag, a.addrFlag)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(f.Home.Root); err != nil && f.Addr == "" {
		return nil, fmt.Errorf("there is no %s yet\n  start with  writ up -d: %w", f.Home.Root, client.ErrNoServer)
	}
	return f.Dial(role)
}

// reader connects with the strongest credential that can be read here, for showing things.
func (a *app) reader() (*client.Conn, error) {
	f, err := client.Find(a.homeFlag, a.addrFlag)
	if err != nil {
		return nil, err
	}
	if f.Has(client.Approver) {
		return a.dial(client.Approver)
	}
	return a.dial(client.Caller)
}

// interactive tells whether a person sits at both ends.
func (a *app) interactive() bool {
	in, ok1 := a.streams.In.(*os.File)
	out, ok2 := a.streams.Out.(*os.File)
	return ok1 && ok2 && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// exitOf is the code for an outcome.
func exitOf(o *commonv1.Outcome) int {
	switch o.GetState() {
	case commonv1.OutcomeState_OUTCOME_STATE_COMPLETED:
		return ExitOK
	case commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR:
		return ExitToolError
	case commonv1.OutcomeState_OUTCOME_STATE_DENIED, commonv1.OutcomeState_OUTCOME_STATE_CANCELLED:
		return ExitDenied
	case commonv1.OutcomeState_OUTCOME_STATE_REFUSED, commonv1.OutcomeState_OUTCOME_STATE_STALE:
		return ExitRefused
	}
	return ExitUnknown
}

func word(enum fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(enum.String(), prefix), "_", " "))
}
