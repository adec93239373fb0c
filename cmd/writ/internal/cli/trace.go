package cli

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/telemetry"
)

func (a *app) traceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "trace CALL|RECEIPT|CARD|TRACE|last", Short: "the spans of a call, as a waterfall", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			name := args[0]
			var r *evidencev1.Receipt
			if name == "last" {
				if r, err = a.receiptOf(cmd, conn, name); err != nil {
					return err
				}
				name = r.GetTraceId()
			}
			resp, err := a.wholeTrace(cmd.Context(), conn, name)
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.printTrace(r, resp)
			return nil
		},
	}
}

// tracePatience is how long `writ trace` waits for the spans of a call that ended a moment ago: they are stored beside the
// call, never in its way.
const tracePatience = 3 * time.Second

// wholeTrace reads a trace, and again for a moment while the span that ends last is missing.
func (a *app) wholeTrace(ctx context.Context, conn *client.Conn, name string) (*evidencev1.GetTraceResponse, error) {
	for deadline := time.Now().Add(tracePatience); ; {
		resp, err := conn.Traces.GetTrace(ctx, &evidencev1.GetTraceRequest{Name: name})
		late := time.Now().After(deadline)
		if err != nil && (late || errs.ReasonOf(err) != errs.ReasonName(evidencev1.ErrorReason_ERROR_REASON_TRACE_NOT_FOUND)) {
			return nil, err
		}
		if err == nil && (late || ended(resp.GetSpans())) {
			return resp, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ended(spans []*evidencev1.Span) bool {
	for _, s := range spans {
		if s.GetName() == telemetry.SpanConduct {
			return true
		}
	}
	return false
}

type node struct {
	*evidencev1.Span
	children []*node
}

// printTrace draws one line a span: who, what, when within the whole, how long.
func (a *app) printTrace(r *evidencev1.Receipt, t *evidencev1.GetTraceResponse) {
	spans := t.GetSpans()
	if len(spans) == 0 {
		a.Line("trace %s has no spans yet", t.GetTraceId())
		return
	}
	begin, end := spans[0].GetStartTime().AsTime(), spans[0].GetEndTime().AsTime()
	for _, s := range spans {
		begin, end = earlier(begin, s.GetStartTime().AsTime()), later(end, s.GetEndTime().AsTime())
	}
	head := "trace " + t.GetTraceId()
	if r != nil {
		head = fmt.Sprintf("%s · %s · %s · %s · trace %s", r.GetCall(), ui.Safe(r.GetTool().GetTool(), false), word(r.GetState(), "OUTCOME_STATE_"), span(end.Sub(begin)), ui.Short(t.GetTraceId()))
	}
	for _, l := range ui.Fold(head, ui.Width) {
		a.Line("%s", l)
	}
	for _, root := range forest(spans) {
		a.printSpan(root, 0, begin, end.Sub(begin))
	}
	if t.GetDropped() > 0 {
		a.Note("%d spans were dropped: a bound was hit", t.GetDropped())
	}
}

func forest(spans []*evidencev1.Span) (roots []*node) {
	nodes := map[string]*node{}
	for _, s := range spans {
		nodes[s.GetSpanId()] = &node{Span: s}
	}
	for _, s := range spans {
		n := nodes[s.GetSpanId()]
		if parent := nodes[s.GetParentSpanId()]; parent != nil && parent != n {
			parent.children = append(parent.children, n)
		} else {
			roots = append(roots, n)
		}
	}
	for _, n := range nodes {
		byStart(n.children)
	}
	byStart(roots)
	return roots
}

func byStart(ns []*node) {
	sort.SliceStable(ns, func(i, j int) bool { return ns[i].GetStartTime().AsTime().Before(ns[j].GetStartTime().AsTime()) })
}

func (a *app) printSpan(n *node, depth int, begin time.Time, whole time.Duration) {
	// A call over a channel is a client and a server span of the same name: one line says both.
	if n.GetKind() == "client" && len(n.children) == 1 && n.children[0].GetName() == n.GetName() {
		a.printSpan(n.children[0], depth, begin, whole)
		return
	}
	const bar, label = 26, 40
	at, width := 0, 1
	if whole > 0 {
		at = int(int64(bar) * int64(n.GetStartTime().AsTime().Sub(begin)) / int64(whole))
		width = max(1, int(int64(bar)*int64(n.GetEndTime().AsTime().Sub(n.GetStartTime().AsTime()))/int64(whole)))
	}
	at = min(at, bar-1)
	width = min(width, bar-at)
	name := n.GetName()
	if i := strings.LastIndex(name, "/"); i >= 0 && strings.HasPrefix(name, "writ.") {
		name = name[i+1:]
	}
	text := strings.Repeat(" ", min(depth, 6)) + strings.TrimPrefix(n.GetService(), "writ-") + "  " + ui.Safe(name, false)
	if r := []rune(text); len(r) > label {
		text = string(r[:label-1]) + "…"
	}
	drawn := strings.Repeat(" ", at) + strings.Repeat("━", width) + strings.Repeat(" ", bar-at-width)
	if n.GetError() {
		drawn = a.Bad(drawn)
	}
	a.Line("  %s%s %s %s", text, strings.Repeat(" ", max(0, label-len([]rune(text)))), drawn, span(n.GetEndTime().AsTime().Sub(n.GetStartTime().AsTime())))
	for _, c := range n.children {
		a.printSpan(c, depth+1, begin, whole)
	}
}

func span(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= 100*time.Microsecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
