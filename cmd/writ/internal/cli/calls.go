package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
)

func (a *app) callsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "calls", Short: "running, waiting and recorded calls"}
	cmd.AddCommand(a.callsList(), a.callsShow(), a.callsCancel())
	return cmd
}

func (a *app) callsList() *cobra.Command {
	var turn string
	var n int32
	cmd := &cobra.Command{
		Use: "list", Short: "list calls: running and waiting ones first, then newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Calls.ListCalls(cmd.Context(), &gatewayv1.ListCallsRequest{PageSize: n, Turn: turn})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			var rows [][]string
			for _, c := range resp.GetCalls() {
				rows = append(rows, []string{a.callState(c), ui.Safe(c.GetTool(), false), clock(c.GetCreateTime()), c.GetName()})
			}
			if len(rows) == 0 {
				a.Line("no calls yet. Make one with  writ call TOOL")
				return nil
			}
			a.Table([]string{"STATE", "TOOL", "AT", "CALL"}, rows)
			return nil
		},
	}
	cmd.Flags().StringVar(&turn, "turn", "", "only of this turn")
	cmd.Flags().Int32VarP(&n, "number", "n", 20, "how many")
	return cmd
}

func (a *app) callState(c *gatewayv1.Call) string {
	switch c.GetState() {
	case gatewayv1.CallState_CALL_STATE_ENDED:
		w := word(c.GetOutcome().GetState(), "OUTCOME_STATE_")
		if exitOf(c.GetOutcome()) == ExitOK {
			return a.Good(w)
		}
		return a.Bad(w)
	case gatewayv1.CallState_CALL_STATE_WAITING:
		return a.Wait("waiting " + c.GetCard())
	}
	return word(c.GetState(), "CALL_STATE_")
}

func (a *app) callsShow() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use: "show CALL|last", Short: "show a call and its result", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			name, err := a.callName(cmd, conn, args[0])
			if err != nil {
				return err
			}
			resp, err := conn.Calls.GetCall(cmd.Context(), &gatewayv1.GetCallRequest{Name: name})
			if err != nil {
				return err
			}
			c := resp.GetCall()
			switch {
			case raw:
				_, err = a.Out.Write(append(c.GetOutcome().GetResult(), '\n'))
				return err
			case a.json:
				return a.Message(resp)
			}
			a.Line("%s · %s · %s", c.GetName(), ui.Safe(c.GetTool(), false), a.callState(c))
			if o := c.GetOutcome(); o != nil {
				if len(o.GetResult()) > 0 {
					a.printResult(o.GetResult())
				}
				a.Line("receipt %s · trace %s", o.GetReceipt(), c.GetTraceId())
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "only the result's bytes as the tool returned them")
	return cmd
}

func (a *app) callsCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel CALL", Short: "cancel a call", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Caller)
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Calls.CancelCall(cmd.Context(), &gatewayv1.CancelCallRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.Line("%s is being cancelled", resp.GetCall().GetName())
			return nil
		},
	}
}

// callName understands "last", a receipt's id, and a call's name.
func (a *app) callName(cmd *cobra.Command, conn *client.Conn, s string) (string, error) {
	if strings.HasPrefix(s, "turns/") {
		return s, nil
	}
	r, err := a.receiptOf(cmd, conn, s)
	if err != nil {
		return "", err
	}
	if r.GetCall() == "" {
		return "", fmt.Errorf("receipt %s is about no call", r.GetId())
	}
	return r.GetCall(), nil
}

// receiptOf understands "last", a receipt's id and a call's name.
func (a *app) receiptOf(cmd *cobra.Command, conn *client.Conn, s string) (*evidencev1.Receipt, error) {
	if s != "last" {
		resp, err := conn.Receipts.GetReceipt(cmd.Context(), &evidencev1.GetReceiptRequest{Name: s})
		return resp.GetReceipt(), err
	}
	list, err := conn.Receipts.ListReceipts(cmd.Context(), &evidencev1.ListReceiptsRequest{PageSize: 200})
	if err != nil {
		return nil, err
	}
	for _, r := range list.GetReceipts() {
		if r.GetKind() != evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START { // a server's start is nobody's last call
			return r, nil
		}
	}
	return nil, fmt.Errorf("there is no receipt yet; make a call with  writ call TOOL")
}
