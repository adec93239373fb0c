package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

func (a *app) receiptCommand() *cobra.Command {
	return &cobra.Command{
		Use: "receipt CALL|RECEIPT|last", Short: "the signed statement of a call", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			r, err := a.receiptOf(cmd, conn, args[0])
			if err != nil {
				return err
			}
			resp, err := conn.Receipts.GetReceipt(cmd.Context(), &evidencev1.GetReceiptRequest{Name: r.GetId(), WithOpening: true})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.printReceipt(resp.GetReceipt(), resp.GetOpening(), a.decisionOf(cmd, conn, resp.GetReceipt()))
			return nil
		},
	}
}

// decisionOf says who allowed or denied it: in the words of its card where a person answered one.
func (a *app) decisionOf(cmd *cobra.Command, conn *client.Conn, r *evidencev1.Receipt) string {
	if r.GetCard() == "" {
		return r.GetDecision()
	}
	card, err := a.getCard(cmd.Context(), conn, r.GetCard())
	if err != nil || card.GetDecidedBy() == nil {
		return r.GetDecision()
	}
	text := word(card.GetState(), "CARD_STATE_") + " by " + card.GetDecidedBy().GetId()
	if card.GetLifetime() != 0 {
		text += ", " + word(card.GetLifetime(), "LIFETIME_")
	}
	return fmt.Sprintf("%s, %.1f s after being asked (card %s)", text, card.GetDecideTime().AsTime().Sub(card.GetAskTime().AsTime()).Seconds(), card.GetId())
}

func (a *app) printReceipt(r *evidencev1.Receipt, opening *evidencev1.Opening, decision string) {
	a.Line("%s · sealed by %s at %s · number %d", r.GetId(), r.GetExecutor(), r.GetSealTime().AsTime().Local().Format("15:04:05.000"), r.GetSequence())
	row := func(label, format string, args ...any) { a.Line("  %-9s%s", label, fmt.Sprintf(format, args...)) }
	who := r.GetPrincipal()
	if r.GetAgent() != "" {
		who += " for agent " + r.GetAgent()
	}
	if r.GetConversation() != "" {
		who += ", conversation " + r.GetConversation()
	}
	row("who", "%s", ui.Safe(who, false))
	if r.GetCall() != "" {
		row("call", "%s", r.GetCall())
	}
	if t := r.GetTool(); t.GetTool() != "" {
		row("tool", "%s   fingerprint %s as the model saw it", ui.Safe(t.GetTool(), false), ui.Short(t.GetWireFingerprint()))
		row("provider", "%s   digest %s", ui.Safe(t.GetProvider(), false), ui.Short(t.GetProviderDigest()))
	}
	if decision != "" {
		row("decision", "%s", ui.Safe(decision, false))
	}
	ended := word(r.GetState(), "OUTCOME_STATE_")
	if r.GetReason() != "" {
		ended += "   " + r.GetReason()
	}
	if r.GetCount() > 1 {
		ended += fmt.Sprintf("   %d times", r.GetCount())
	}
	row("ended", "%s", ended)
	if e := r.GetEnforcement(); e.GetIsolation() != commonv1.Isolation_ISOLATION_UNSPECIFIED {
		row("reached", "%s, network %s%s", word(e.GetIsolation(), "ISOLATION_"), word(e.GetNetwork(), "NETWORK_MODE_"), credentialOf(opening))
		row("in force", "%s", strings.Join(e.GetMechanisms(), " · "))
		for _, d := range e.GetDegraded() {
			row("", "%s", a.Wait("not in force: "+d))
		}
	}
	if b := opening.GetOutcome().GetResult(); len(b) > 0 {
		sum := sha256.Sum256(b)
		row("result", "%d bytes, sha256 %s", len(b), ui.Short(hex.EncodeToString(sum[:])))
	}
	row("trace", "%s   %s", r.GetTraceId(), a.Dim("writ trace "+r.GetId()))
	a.Line("%s", a.Dim("signed by its executor and by evidence-svc; unwitnessed: the operator could have rewritten this"))
}

func credentialOf(o *evidencev1.Opening) string {
	if o.GetOutcome().GetCredential() == 0 {
		return ""
	}
	return "   credential " + word(o.GetOutcome().GetCredential(), "CREDENTIAL_FACT_")
}

// digestOf finds the provider digest that a setting for a tool, or for "mcp.SERVER.*", is bound to.
func (a *app) digestOf(cmd *cobra.Command, conn *client.Conn, tool string) (string, error) {
	rest, ok := strings.CutPrefix(tool, "mcp.")
	if !ok {
		return "", nil
	}
	server, _, _ := strings.Cut(rest, ".")
	resp, err := conn.Connectors.GetConnector(cmd.Context(), &registryv1.GetConnectorRequest{Name: server})
	return resp.GetConnector().GetProviderDigest(), err
}
