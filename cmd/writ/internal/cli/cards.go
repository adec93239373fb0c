package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

func (a *app) cardsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cards", Short: "questions to you, and your answers"}
	cmd.AddCommand(a.cardsList(), a.cardsShow(), a.cardsApprove(), a.cardsDeny())
	return cmd
}

func (a *app) cardsList() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "list open cards; with --all decided ones too", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			req := &permissionv1.ListCardsRequest{PageSize: 200, State: permissionv1.CardState_CARD_STATE_PENDING}
			if all {
				req.State = permissionv1.CardState_CARD_STATE_UNSPECIFIED
			}
			resp, err := conn.Cards.ListCards(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			var rows [][]string
			for _, c := range resp.GetCards() {
				rows = append(rows, []string{c.GetId(), a.cardState(c.GetState()), clock(c.GetAskTime()), c.GetPreview().GetTitle()})
			}
			if len(rows) == 0 {
				a.Line("nothing waits for you")
				return nil
			}
			a.Table([]string{"CARD", "STATE", "ASKED", "WHAT"}, rows)
			if !all {
				a.Note("look with  writ cards show CARD   answer with  writ cards approve CARD  or  deny CARD")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "decided and cancelled ones too")
	return cmd
}

func (a *app) cardState(s permissionv1.CardState) string {
	w := word(s, "CARD_STATE_")
	switch s {
	case permissionv1.CardState_CARD_STATE_PENDING:
		return a.Wait(w)
	case permissionv1.CardState_CARD_STATE_APPROVED:
		return a.Good(w)
	}
	return w
}

func (a *app) getCard(ctx context.Context, conn *client.Conn, id string) (*permissionv1.Card, error) {
	resp, err := conn.Cards.GetCard(ctx, &permissionv1.GetCardRequest{Card: id})
	return resp.GetCard(), err
}

func (a *app) cardsShow() *cobra.Command {
	return &cobra.Command{
		Use: "show CARD", Short: "show a card whole", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			card, err := a.getCard(cmd.Context(), conn, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(card)
			}
			foot := ""
			if card.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
				foot = fmt.Sprintf("%s by %s at %s ", word(card.GetState(), "CARD_STATE_"), card.GetDecidedBy().GetId(), clock(card.GetDecideTime()))
			}
			a.printCard(card, foot)
			a.Line("")
			for _, r := range card.GetRemember() {
				a.Line("  %-13s would remember  %s", word(r.GetLifetime(), "LIFETIME_"), ui.Safe(r.GetText(), false))
			}
			return nil
		},
	}
}

// printCard draws a card. Everything foreign in it was escaped by permission-svc; escaping again here changes nothing
// then, and protects a person from a permission service that does not.
func (a *app) printCard(c *permissionv1.Card, foot string) {
	var lines []string
	add := func(label, text string) {
		for i, l := range strings.Split(ui.Safe(text, true), "\n") {
			if i > 0 {
				label = ""
			}
			lines = append(lines, fmt.Sprintf("%-9s%s", label, l))
		}
	}
	p := c.GetPreview()
	if p.GetCommand() != "" {
		add("command", p.GetCommand())
	}
	for _, arg := range p.GetArguments() {
		if p.GetCommand() != "" && (arg.GetName() == "command" || arg.GetName() == "argv") {
			continue
		}
		name := ui.Safe(arg.GetName(), false)
		if len(name) > 8 {
			lines = append(lines, name)
			name = ""
		}
		add(name, arg.GetValue())
	}
	for _, r := range c.GetReach() {
		lines = append(lines, ui.Safe(r, false))
	}
	if c.GetEnforcement() != "" {
		lines = append(lines, ui.Safe(c.GetEnforcement(), false))
	}
	lines = append(lines, "asks because: "+ui.Safe(c.GetWhy(), false))
	for _, w := range p.GetWarnings() {
		lines = append(lines, a.Bad("! "+ui.Safe(w, false)))
	}
	if !p.GetComplete() {
		lines = append(lines, a.Bad("! not everything can be shown, so this can't be approved"))
	}
	left := strings.ReplaceAll(strings.TrimPrefix(c.GetTool().GetTool(), "mcp."), ".", " · ")
	a.Box(ui.Safe(left, false), "card "+c.GetId(), lines, foot)
}

var keys = map[string]permissionv1.Lifetime{
	"o": permissionv1.Lifetime_LIFETIME_ONCE, "t": permissionv1.Lifetime_LIFETIME_TURN, "c": permissionv1.Lifetime_LIFETIME_CONVERSATION,
	"p": permissionv1.Lifetime_LIFETIME_PROJECT, "a": permissionv1.Lifetime_LIFETIME_NAMESPACE,
}

// ask shows a card and takes the answer of the person at this terminal.
func (a *app) ask(ctx context.Context, approver *client.Conn, seen *permissionv1.Card) (*permissionv1.Card, error) {
	card, err := a.getCard(ctx, approver, seen.GetId())
	if err != nil {
		return nil, err
	}
	offered := map[permissionv1.Lifetime]bool{permissionv1.Lifetime_LIFETIME_ONCE: true}
	for _, r := range card.GetRemember() {
		offered[r.GetLifetime()] = true
	}
	foot := "[o]nce   "
	if offered[permissionv1.Lifetime_LIFETIME_CONVERSATION] {
		foot += "[c]onversation   "
	}
	if offered[permissionv1.Lifetime_LIFETIME_NAMESPACE] {
		foot += "[a]lways   "
	}
	foot += "[d]eny   [?] explain "
	a.printCard(card, foot)
	// Reading goes on in its own goroutine until the person answers or the process ends; a terminal read can't be cancelled.
	answers := make(chan string)
	go func() {
		in := bufio.NewReader(a.streams.In)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				close(answers)
				return
			}
			answers <- strings.ToLower(strings.TrimSpace(line))
		}
	}()
	for {
		fmt.Fprint(a.Out, " ")
		var key string
		var ok bool
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case key, ok = <-answers:
			if !ok {
				return card, nil
			}
		}
		switch lifetime, known := keys[key]; {
		case key == "d":
			return a.decide(ctx, approver, card, permissionv1.Answer_ANSWER_DENY, 0, "")
		case key == "?":
			a.Line("%s", ui.Safe(card.GetWhy(), false))
			for _, r := range card.GetRemember() {
				a.Line("  %-13s would remember  %s", word(r.GetLifetime(), "LIFETIME_"), ui.Safe(r.GetText(), false))
			}
		case known && offered[lifetime]:
			return a.decide(ctx, approver, card, permissionv1.Answer_ANSWER_APPROVE, lifetime, "")
		default:
			fmt.Fprint(a.Out, "o, c, a, d or ?")
		}
	}
}

func (a *app) decide(ctx context.Context, conn *client.Conn, card *permissionv1.Card, answer permissionv1.Answer, lifetime permissionv1.Lifetime, reason string) (*permissionv1.Card, error) {
	resp, err := conn.Cards.DecideCard(ctx, &permissionv1.DecideCardRequest{
		Card: card.GetId(), Etag: card.GetEtag(), PreviewSha256: card.GetPreview().GetSha256(), Answer: answer, Lifetime: lifetime, Reason: reason,
	})
	return resp.GetCard(), err
}

func (a *app) cardsApprove() *cobra.Command {
	var lifetime, reason string
	cmd := &cobra.Command{
		Use: "approve CARD", Short: "say yes", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, ok := permissionv1.Lifetime_value["LIFETIME_"+strings.ToUpper(lifetime)]
			if !ok || l == 0 {
				return usagef("--for %s: one of once, turn, conversation, project, namespace", lifetime)
			}
			return a.answer(cmd.Context(), args[0], permissionv1.Answer_ANSWER_APPROVE, permissionv1.Lifetime(l), reason)
		},
	}
	cmd.Flags().StringVar(&lifetime, "for", "once", "how long the answer stands: once, turn, conversation, project or namespace")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (a *app) cardsDeny() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny CARD", Short: "say no", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), args[0], permissionv1.Answer_ANSWER_DENY, 0, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (a *app) answer(ctx context.Context, id string, answer permissionv1.Answer, lifetime permissionv1.Lifetime, reason string) error {
	conn, err := a.dial(client.Approver)
	if err != nil {
		return err
	}
	defer conn.Close()
	card, err := a.getCard(ctx, conn, id)
	if err != nil {
		return err
	}
	if !a.json && card.GetState() == permissionv1.CardState_CARD_STATE_PENDING {
		a.printCard(card, "")
		a.Line("")
	}
	decided, err := a.decide(ctx, conn, card, answer, lifetime, reason)
	if err != nil {
		return err
	}
	if a.json {
		return a.Message(decided)
	}
	a.Line("%s %s, %.1f s after it asked", decided.GetId(), a.cardState(decided.GetState()), decided.GetDecideTime().AsTime().Sub(decided.GetAskTime().AsTime()).Round(100*time.Millisecond).Seconds())
	if decided.GetGrant() != "" {
		a.Line("  remembered as %s. Take it back with  writ grants revoke %s", decided.GetGrant(), decided.GetGrant())
	}
	return nil
}
