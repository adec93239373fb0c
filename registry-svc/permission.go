package registry

import (
	"context"
	"strings"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
)

// classifier adapts permission's client, or stands in for it.
func (s *Server) classifier() turn.Classifier {
	if s.clients.Settings == nil {
		return alone{}
	}
	return &settings{client: s.clients.Settings}
}

type settings struct {
	client permissionv1.SettingsServiceClient
}

func (c *settings) Classify(ctx context.Context, namespace string, mode, limit commonv1.Mode, tools []turn.Tool) (turn.Classification, error) {
	req := &permissionv1.ClassifyToolsRequest{Mode: mode, CredentialMaxMode: limit, Namespace: namespace}
	for _, t := range tools {
		req.Tools = append(req.Tools, &permissionv1.ClassifyTool{
			Tool: t.ID, Lane: t.Lane, BuiltinClass: t.Class, ProviderDigest: t.ProviderDigest, DestructiveHint: t.Destructive(),
		})
	}
	res, err := c.client.ClassifyTools(ctx, req)
	if errs.Is(err, permissionv1.ErrorReason_ERROR_REASON_MODE_NOT_ALLOWED) {
		meta := errs.Metadata(err)
		return turn.Classification{}, modeNotAllowed(mode, meta["cap"], meta["by"], meta[errs.KeyNext])
	}
	if err != nil {
		return turn.Classification{}, err
	}
	if got := res.GetMode(); auth.ModeRank(got) > auth.ModeRank(limit) || mode != commonv1.Mode_MODE_UNSPECIFIED && got != mode {
		return turn.Classification{}, fault.New(fault.Internal, "permission", "permission gave the mode "+got.String()+", which nobody may have here", "")
	}
	out := turn.Classification{Mode: res.GetMode(), PolicyVersion: res.GetPolicyVersion()}
	for _, v := range res.GetTools() {
		out.Tools = append(out.Tools, turn.Verdict{
			Tool: v.GetTool(), Class: v.GetClass(), Disposition: v.GetDisposition(), AlwaysGate: v.GetAlwaysGate(), Why: v.GetWhy(),
		})
	}
	return out, nil
}

// alone classifies where there is no permission service: builtins by the manifest, everything else as the highest class,
// and no mode above Manual, since no person set one.
type alone struct{}

func (alone) Classify(_ context.Context, _ string, mode, limit commonv1.Mode, tools []turn.Tool) (turn.Classification, error) {
	const manual = commonv1.Mode_MODE_MANUAL
	if mode == commonv1.Mode_MODE_UNSPECIFIED {
		mode = manual
		if auth.ModeRank(limit) < auth.ModeRank(manual) {
			mode = limit
		}
	}
	if auth.ModeRank(mode) > auth.ModeRank(manual) {
		return turn.Classification{}, modeNotAllowed(mode, word(manual), "settings", "Give the registry a permission service.")
	}
	out := turn.Classification{Mode: mode, PolicyVersion: "alone"}
	for _, t := range tools {
		v := turn.Verdict{Tool: t.ID, Class: t.Class, Disposition: commonv1.Disposition_DISPOSITION_AUTOMATIC, Why: "the manifest"}
		if t.Lane != commonv1.Lane_LANE_BUILTIN {
			v.Class, v.Why = commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION, "nobody classified it"
		}
		out.Tools = append(out.Tools, v)
	}
	return out, nil
}

func modeNotAllowed(mode commonv1.Mode, limit, by, next string) error {
	if next == "" {
		next = "Ask for a lower mode; the cap is a person's to raise."
	}
	return fault.OfField(fault.ModeNotAllowed, "mode", word(mode), "the mode "+word(mode)+" is over what is allowed here", next, "cap", limit, "by", by)
}

// word is a mode as people write it: "accept_edits".
func word(m commonv1.Mode) string {
	return strings.ToLower(strings.TrimPrefix(m.String(), "MODE_"))
}

// cards adapts permission's client; nil where there is none.
func (s *Server) cards() turn.Cards {
	if s.clients.Cards == nil {
		return nil
	}
	return &cardsOf{client: s.clients.Cards}
}

type cardsOf struct {
	client permissionv1.CardServiceClient
}

func (c *cardsOf) Cancel(ctx context.Context, t turn.Turn, why string) error {
	_, err := c.client.CancelCards(ctx, &permissionv1.CancelCardsRequest{Turn: t.ID, Reason: why, Namespace: t.Principal.Namespace})
	return err
}

// AnyOpen asks on behalf of the turn's own principal, whose namespace the list is in.
func (c *cardsOf) AnyOpen(ctx context.Context, t turn.Turn) (bool, error) {
	if t.Principal.Kind != commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE {
		ctx = auth.OnBehalfOf(ctx, principalProto(t.Principal))
	}
	res, err := c.client.ListCards(ctx, &permissionv1.ListCardsRequest{
		Turn: t.ID, State: permissionv1.CardState_CARD_STATE_PENDING, PageSize: 1,
	})
	return len(res.GetCards()) > 0, err
}
