package permission

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
	"github.com/writ-dev/writ/permission-svc/internal/setting"
)

func timeProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func etag(version int64) string { return strconv.FormatInt(version, 10) }

func cardProto(c card.Card) *permissionv1.Card {
	out := &permissionv1.Card{
		Id: c.ID, Etag: etag(c.Version), State: c.State, Turn: c.Turn, Call: c.Call, Conversation: c.Conversation,
		Principal: c.Principal.Proto(), Agent: c.Agent, Class: c.Class, Mode: c.Mode, Why: c.Why, Reach: c.Reach, Enforcement: c.Enforcement,
		Tool: &commonv1.ToolIdentity{
			Tool: c.Tool.ID, WireFingerprint: c.Tool.Fingerprint, SemanticFingerprint: c.Tool.Semantic, Provider: c.Tool.Provider, ProviderDigest: c.Tool.ProviderDigest,
		},
		AskTime: timeProto(c.AskTime), DecideTime: timeProto(c.DecideTime), DecidedBy: c.DecidedBy.Proto(), DecidedWith: c.DecidedBy.Credential,
		Lifetime: c.Lifetime, Reason: c.Reason, Grant: c.Grant, TraceId: c.TraceID, Traceparent: c.Traceparent,
		Arguments: c.Arguments, ArgumentsSha256: c.SHA256,
		Preview: &permissionv1.Preview{
			Title: c.Preview.Title, Command: c.Preview.Command, Complete: c.Preview.Complete, Sha256: c.Preview.SHA256, Warnings: c.Preview.Warnings,
		},
	}
	for _, a := range c.Preview.Arguments {
		out.Preview.Arguments = append(out.Preview.Arguments, &permissionv1.PreviewArgument{Name: a.Name, Value: a.Value})
	}
	for _, o := range c.Offers {
		out.Remember = append(out.Remember, &permissionv1.Remember{Lifetime: o.Lifetime, Text: o.Text})
	}
	return out
}

func grantProto(g grant.Grant) *permissionv1.Grant {
	return &permissionv1.Grant{
		Id: g.ID, Lifetime: g.Lifetime, Scope: g.Scope, Tool: g.Tool, CommandWord: g.CommandWord, ProviderDigest: g.ProviderDigest, WireFingerprint: g.Fingerprint,
		Principal: g.Principal.Proto(), GrantedBy: g.By.Proto(), CreateTime: timeProto(g.CreateTime), ExpireTime: timeProto(g.ExpireTime), RevokeTime: timeProto(g.RevokeTime),
		Card: g.Card, Text: g.Text, Agent: g.Agent,
	}
}

func settingsProto(v setting.Settings) *permissionv1.Settings {
	return &permissionv1.Settings{
		ModeCap: v.Cap, AlwaysAsk: v.AlwaysAsk, ModesOff: v.ModesOff, Etag: etag(v.Version), UpdatedBy: v.By.Proto(), UpdateTime: timeProto(v.At),
	}
}

func toolSettingProto(t setting.Tool) *permissionv1.ToolSetting {
	return &permissionv1.ToolSetting{
		Tool: t.Tool, Disposition: t.Disposition, Class: t.Class, AlwaysGate: t.AlwaysGate, ProviderDigest: t.ProviderDigest, UpdatedBy: t.By.Proto(), UpdateTime: timeProto(t.At),
	}
}
