package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/rawjson"
)

func (a *app) callCommand() *cobra.Command {
	var f turnFlags
	var turn, id string
	var noWait, raw bool
	cmd := &cobra.Command{
		Use:   "call TOOL [key=value … | JSON | @FILE | -]",
		Short: "call a tool; shows the card and asks where one is needed",
		Long: "Calls a tool in a turn of its own, or in the one named by --turn. Where a person has to be asked, the card is shown;\n" +
			"it is answered here when this terminal holds the approver's credential, else with `writ cards`.\n\n" +
			"Exit codes: 0 completed, 3 the tool failed, 4 denied or cancelled, 5 refused or stale, 6 unknown, 7 waiting for a person.",
		Example: "  writ call mcp.fs.read_text_file path=notes/a.txt\n  writ call mcp.db.query limit:=9007199254740993 '{\"sql\":\"…\"}'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Caller)
			if err != nil {
				return err
			}
			defer conn.Close()
			if f.conversation == "" {
				f.conversation = terminalConversation()
			}
			t, own, err := a.turnFor(cmd.Context(), conn, turn, f, args[0])
			if err != nil {
				return err
			}
			argBytes, err := a.arguments(args[1:], definitionOf(t, args[0]))
			if err != nil {
				return err
			}
			c := &conversation{app: a, conn: conn, noWait: noWait, raw: raw, start: time.Now()}
			err = c.call(cmd.Context(), &gatewayv1.CallToolRequest{Turn: t.GetId(), Call: id, Tool: args[0], Arguments: argBytes})
			if own && !c.pending && cmd.Context().Err() == nil { // who leaves leaves the call running, and its turn open
				endTurn(conn, t.GetId())
			}
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&turn, "turn", "", "the turn (default one of its own)")
	cmd.Flags().StringVar(&id, "call", "", "the call's id: repeating it is safe (default minted)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "don't wait for a person: print the card and exit with 7")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the result's bytes as the tool returned them")
	return cmd
}

// terminalConversation names the conversation of a person's own calls, so that "for this conversation" means something.
func terminalConversation() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("terminal-%s", name)
}

// turnFor returns the named turn, or opens one that has just the tool.
func (a *app) turnFor(ctx context.Context, conn *client.Conn, id string, f turnFlags, tool string) (t *registryv1.Turn, own bool, err error) {
	if id != "" {
		resp, err := conn.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{Turn: id})
		return resp.GetTurn(), false, err
	}
	if strings.Contains(tool, ".") || tool == "run_command" {
		f.tools = []string{tool}
	}
	t, err = a.openTurn(ctx, conn, f, false)
	if err != nil {
		return nil, false, err
	}
	for _, p := range t.GetProblems() {
		if strings.HasPrefix(tool, p.GetProvider()+".") {
			endTurn(conn, t.GetId())
			return nil, false, status.FromProto(p.GetStatus()).Err()
		}
	}
	return t, true, nil
}

// endTurn ends a turn that only served one call; an error changes nothing for the call, and an idle turn ends by itself.
func endTurn(conn *client.Conn, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = conn.Turns.EndTurn(ctx, &registryv1.EndTurnRequest{Turn: id})
}

func definitionOf(t *registryv1.Turn, tool string) []byte {
	for _, tt := range t.GetTools() {
		if tt.GetTool().GetIdentity().GetTool() == tool || tt.GetTool().GetAlias() == tool {
			return tt.GetTool().GetDefinition()
		}
	}
	return nil
}

// conversation is one call as a person at a terminal follows it.
type conversation struct {
	*app
	conn     *client.Conn
	noWait   bool
	raw      bool
	stream   bool // command output goes straight through
	streamed bool
	pending  bool
	start    time.Time
	asked    time.Time
	waited   time.Duration
	name     string
}

type events interface {
	Recv() (*gatewayv1.CallToolResponse, error)
}

func (c *conversation) call(ctx context.Context, req *gatewayv1.CallToolRequest) error {
	stream, err := c.conn.Calls.CallTool(ctx, req)
	if err != nil {
		return err
	}
	return c.follow(ctx, stream, 0)
}

// follow prints events until the outcome, and attaches again by the call's name when the stream breaks.
func (c *conversation) follow(ctx context.Context, stream events, seen int64) error {
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the stream ended before the outcome")
		}
		if err != nil {
			if c.name == "" || ctx.Err() != nil || status.Code(err) != codes.Unavailable {
				return c.interrupted(ctx, err)
			}
			time.Sleep(300 * time.Millisecond)
			attached, aerr := c.conn.Calls.AttachCall(ctx, &gatewayv1.AttachCallRequest{Name: c.name}, grpc.WaitForReady(true))
			if aerr != nil {
				return aerr
			}
			stream = attachStream{attached}
			continue
		}
		e := resp.GetEvent()
		if e.GetSequence() <= seen {
			continue
		}
		if done, err := c.event(ctx, e); done || err != nil {
			return err
		}
	}
}

type attachStream struct {
	grpc.ServerStreamingClient[gatewayv1.AttachCallResponse]
}

func (s attachStream) Recv() (*gatewayv1.CallToolResponse, error) {
	r, err := s.ServerStreamingClient.Recv()
	if err != nil {
		return nil, err
	}
	return &gatewayv1.CallToolResponse{Event: r.GetEvent()}, nil
}

func (c *conversation) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && c.name != "" && !c.stream {
		c.Note("left: the call goes on. Look with  writ calls show %s   stop it with  writ calls cancel %s", c.name, c.name)
	}
	return err
}

// event handles one event; done ends the following.
func (c *conversation) event(ctx context.Context, e *gatewayv1.CallEvent) (done bool, err error) {
	if c.json {
		if err := c.Message(e); err != nil {
			return true, err
		}
	}
	switch {
	case e.GetAccepted() != nil:
		c.name = e.GetAccepted().GetName()
	case e.GetCard() != nil:
		return c.card(ctx, e.GetCard())
	case e.GetExecution().GetOutput() != nil && c.stream && !c.json:
		out := e.GetExecution().GetOutput()
		c.streamed = true
		w := c.Out
		if out.GetStream() == commonv1.OutputStream_OUTPUT_STREAM_STDERR {
			w = c.Err
		}
		_, err = w.Write(out.GetData())
		return false, err
	case e.GetExecution().GetProgress() != nil && c.interactive() && !c.json:
		p := e.GetExecution().GetProgress()
		c.Note("%s", c.Dim(fmt.Sprintf("%.0f of %.0f  %s", p.GetProgress(), p.GetTotal(), ui.Safe(p.GetMessage(), false))))
	case e.GetExecution().GetWaiting() != nil && c.interactive() && !c.json:
		c.Note("%s", c.Dim(ui.Safe(e.GetExecution().GetWaiting().GetWhat(), false)+" …"))
	case e.GetOutcome() != nil:
		return true, c.outcome(e.GetOutcome())
	}
	return false, nil
}

func (c *conversation) card(ctx context.Context, card *permissionv1.Card) (done bool, err error) {
	if card.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
		if !c.asked.IsZero() {
			c.waited, c.asked = time.Since(c.asked), time.Time{}
		}
		return false, nil
	}
	if !c.asked.IsZero() {
		return false, nil
	}
	c.asked = time.Now()
	f, err := client.Find(c.homeFlag, c.addrFlag)
	if err != nil {
		return true, err
	}
	switch {
	case c.noWait:
		c.pending = true
		if !c.json {
			c.printCard(card, "")
			c.Line("")
			c.Line("waits for a person: %s.  Answer with  writ cards approve %s   then  writ calls show %s", card.GetId(), card.GetId(), c.name)
		}
		return true, exit(ExitPending)
	case c.interactive() && f.Has(client.Approver) && !c.json:
		approver, err := c.dial(client.Approver)
		if err != nil {
			return true, err
		}
		defer approver.Close()
		_, err = c.ask(ctx, approver, card)
		return err != nil, err
	case !c.json:
		c.printCard(card, "")
		c.Line("")
		c.Note("waiting for a person. Answer elsewhere with  writ cards approve %s", card.GetId())
	}
	return false, nil
}

func (c *conversation) outcome(o *commonv1.Outcome) error {
	if c.raw && len(o.GetResult()) > 0 {
		_, err := c.Out.Write(append(o.GetResult(), '\n'))
		if err != nil {
			return err
		}
	} else if !c.json {
		c.printOutcome(o)
	}
	if code := programExit(o.GetResult()); c.stream && code != 0 {
		return exit(code)
	}
	if code := exitOf(o); code != ExitOK {
		return exit(code)
	}
	return nil
}

func (c *conversation) printOutcome(o *commonv1.Outcome) {
	if len(o.GetResult()) > 0 && !c.streamed {
		c.printResult(o.GetResult())
	}
	if ref := o.GetResultBlob(); ref != nil {
		c.Line("the result has %d bytes and is kept as %s", ref.GetSize(), ref.GetHandle())
	}
	state := word(o.GetState(), "OUTCOME_STATE_")
	if o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_COMPLETED {
		state = c.Good("done")
	} else {
		c.explainStatus(status.FromProto(o.GetStatus()))
		state = c.Bad(state)
	}
	took := fmt.Sprintf("%.2f s", max(0, time.Since(c.start)-c.waited).Seconds())
	if c.waited > 0 {
		took += fmt.Sprintf(" (%.1f s waiting for you)", c.waited.Seconds())
	}
	c.Note("%s in %s · receipt %s · %s", state, took, o.GetReceipt(), c.Dim("writ trace last"))
	for _, s := range o.GetSurvivors() {
		c.Note("  left running and ended: %d %s", s.GetPid(), ui.Safe(strings.Join(s.GetArgv(), " "), false))
	}
}

// printResult shows the text parts of an MCP result, or the stdout and stderr of a command, or the JSON itself.
func (a *app) printResult(result []byte) {
	if content, ok, _ := rawjson.Get(result, "content"); ok && a.printContent(content) {
		return
	}
	out, hasOut, _ := rawjson.Get(result, "stdout")
	errOut, hasErr, _ := rawjson.Get(result, "stderr")
	if hasOut || hasErr {
		if s, err := rawjson.String(out); err == nil && s != "" {
			fmt.Fprint(a.Out, withNewline(ui.Safe(s, true)))
		}
		if s, err := rawjson.String(errOut); err == nil && s != "" {
			fmt.Fprint(a.Err, withNewline(ui.Safe(s, true)))
		}
		return
	}
	a.Line("%s", ui.Safe(string(result), true))
}

// programExit is the exit code in a command's result, 0 where there is none.
func programExit(result []byte) int {
	raw, ok, err := rawjson.Get(result, "exit_code")
	if err != nil || !ok {
		return 0
	}
	code, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0
	}
	return code
}

func withNewline(s string) string {
	if strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

func (a *app) printContent(content []byte) bool {
	printed := false
	for part, err := range rawjson.Elements(content) {
		if err != nil {
			return printed
		}
		kind, _, _ := rawjson.Get(part, "type")
		text, isText, _ := rawjson.Get(part, "text")
		if s, err := rawjson.String(text); isText && err == nil {
			fmt.Fprint(a.Out, withNewline(ui.Safe(s, true)))
		} else {
			fmt.Fprintf(a.Out, "[%s, %d bytes of JSON; see --raw]\n", ui.Safe(strings.Trim(string(kind), `"`), false), len(part))
		}
		printed = true
	}
	return printed
}

func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "–"
	}
	at := t.AsTime().Local()
	if time.Since(at) > 20*time.Hour {
		return at.Format("2006-01-02 15:04")
	}
	return at.Format("15:04:05")
}

func (a *app) runCommand() *cobra.Command {
	var f turnFlags
	var network string
	var timeout int
	cmd := &cobra.Command{
		Use:   "run -- PROGRAM [ARG …]",
		Short: "run a program in the sandbox, as a gated and recorded call",
		Long: "Runs a program through the builtin run_command: no network unless --network open, writes only in the workspace (the\n" +
			"current folder unless --workspace says otherwise; none with --workspace \"\"). Exits with the program's own code.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("workspace") {
				wd, err := os.Getwd()
				if err != nil {
					return err
				}
				f.workspace = wd
			}
			if f.conversation == "" {
				f.conversation = terminalConversation()
			}
			f.tools = []string{"run_command"}
			conn, err := a.dial(client.Caller)
			if err != nil {
				return err
			}
			defer conn.Close()
			t, err := a.openTurn(cmd.Context(), conn, f, true)
			if err != nil {
				return err
			}
			var b strings.Builder
			b.WriteString(`{"argv":[`)
			for i, w := range args {
				if i > 0 {
					b.WriteByte(',')
				}
				b.Write(quote(w))
			}
			fmt.Fprintf(&b, `],"network":%s,"timeout_seconds":%d}`, quote(network), timeout)
			c := &conversation{app: a, conn: conn, stream: true, start: time.Now()}
			err = c.call(cmd.Context(), &gatewayv1.CallToolRequest{Turn: t.GetId(), Tool: "run_command", Arguments: []byte(b.String())})
			if cmd.Context().Err() != nil { // an interrupted program ends, as at any terminal
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, _ = conn.Turns.CancelTurn(ctx, &registryv1.CancelTurnRequest{Turn: t.GetId()})
				return err
			}
			endTurn(conn, t.GetId())
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&network, "network", "none", "none or open")
	cmd.Flags().IntVar(&timeout, "timeout", 120, "seconds after which it is ended")
	return cmd
}
