package permission

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
	"github.com/writ-dev/writ/permission-svc/internal/setting"
)

type settingsService struct {
	permissionv1.UnimplementedSettingsServiceServer
	*Server
}

// namespaceOf is the identity's; a service without one has to say which.
func namespaceOf(ctx context.Context, asked string) (string, error) {
	id, err := who(ctx)
	if err != nil {
		return "", err
	}
	own := id.Namespace()
	switch {
	case own == "" && asked == "":
		return "", fieldInvalid("namespace", "is missing: every namespace is here", "Send the namespace, or act on behalf of somebody.")
	case own == "":
		return asked, nil
	case asked != "" && asked != own:
		return "", fieldInvalid("namespace", "is not the credential's", "Leave it out.")
	}
	return own, nil
}

// GetSettings implements the contract.
func (s *settingsService) GetSettings(ctx context.Context, _ *permissionv1.GetSettingsRequest) (*permissionv1.GetSettingsResponse, error) {
	namespace, err := namespaceOf(ctx, "")
	if err != nil {
		return nil, err
	}
	v, err := s.store.Settings(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return &permissionv1.GetSettingsResponse{Settings: settingsProto(v)}, nil
}

// UpdateSettings implements the contract.
func (s *settingsService) UpdateSettings(ctx context.Context, req *permissionv1.UpdateSettingsRequest) (*permissionv1.UpdateSettingsResponse, error) {
	person, err := human(ctx, commonv1.Role_ROLE_OPERATOR, permissionv1.SettingsService_UpdateSettings_FullMethodName)
	if err != nil {
		return nil, err
	}
	in := req.GetSettings()
	if err := checkSettings(in); err != nil {
		return nil, err
	}
	expected := int64(-1)
	if in.GetEtag() != "" {
		if expected, err = strconv.ParseInt(in.GetEtag(), 10, 64); err != nil || expected < 0 {
			return nil, etagMismatch("settings")
		}
	}
	v, err := s.store.PutSettings(ctx, person.Namespace, setting.Settings{
		Cap: in.GetModeCap(), AlwaysAsk: sorted(in.GetAlwaysAsk()), ModesOff: sorted(in.GetModesOff()), By: person, At: s.now().UTC(),
	}, expected)
	if err != nil {
		return nil, stored(err, "settings")
	}
	return &permissionv1.UpdateSettingsResponse{Settings: settingsProto(v)}, nil
}

func sorted[E ~int32](list []E) []E {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

func checkSettings(in *permissionv1.Settings) error {
	if in == nil {
		return fieldInvalid("settings", "is missing", "Send the settings whole.")
	}
	if in.GetModeCap() == 0 || commonv1.Mode_name[int32(in.GetModeCap())] == "" {
		return fieldInvalid("settings.mode_cap", "is no mode", "Send one of the modes.")
	}
	for i, m := range in.GetModesOff() {
		if m == 0 || commonv1.Mode_name[int32(m)] == "" {
			return fieldInvalid("settings.modes_off["+strconv.Itoa(i)+"]", "is no mode", "Send one of the modes.")
		}
	}
	for i, c := range in.GetAlwaysAsk() {
		if c == 0 || commonv1.SecurityClass_name[int32(c)] == "" {
			return fieldInvalid("settings.always_ask["+strconv.Itoa(i)+"]", "is no class", "Send one of the classes.")
		}
	}
	return nil
}

// SetDisposition implements the contract.
func (s *settingsService) SetDisposition(ctx context.Context, req *permissionv1.SetDispositionRequest) (*permissionv1.SetDispositionResponse, error) {
	person, err := human(ctx, commonv1.Role_ROLE_OPERATOR, permissionv1.SettingsService_SetDisposition_FullMethodName)
	if err != nil {
		return nil, err
	}
	in := req.GetSetting()
	if err := checkToolSetting(in); err != nil {
		return nil, err
	}
	t := setting.Tool{
		Tool: in.GetTool(), Disposition: in.GetDisposition(), Class: in.GetClass(), AlwaysGate: in.GetAlwaysGate(), ProviderDigest: in.GetProviderDigest(), By: person, At: s.now().UTC(),
	}
	if !loosens(in) {
		t.ProviderDigest = ""
	}
	if err := s.store.PutToolSetting(ctx, person.Namespace, t); err != nil {
		return nil, err
	}
	return &permissionv1.SetDispositionResponse{Setting: toolSettingProto(t)}, nil
}

// loosens reports whether a setting holds only for the provider that it was given for.
func loosens(in *permissionv1.ToolSetting) bool {
	return in.GetClass() != 0 || in.GetDisposition() == commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW
}

func checkToolSetting(in *permissionv1.ToolSetting) error {
	_, _, isMCP := toolname.Split(in.GetTool())
	digest, err := hex.DecodeString(in.GetProviderDigest())
	switch {
	case in.GetTool() == "" || len(in.GetTool()) > 256:
		return fieldInvalid("setting.tool", "is missing or longer than 256 bytes", `Send a tool's canonical id, or "mcp.<server>.*".`)
	case strings.Contains(in.GetTool(), "*") && !(isMCP && strings.HasSuffix(in.GetTool(), ".*") && strings.Count(in.GetTool(), "*") == 1 && strings.Count(in.GetTool(), ".") == 2):
		return fieldInvalid("setting.tool", "is no whole provider", `Send "mcp.<server>.*" for a whole server.`)
	case commonv1.Disposition_name[int32(in.GetDisposition())] == "":
		return fieldInvalid("setting.disposition", "is no disposition", "Send one of the dispositions, or none to take it back.")
	case commonv1.SecurityClass_name[int32(in.GetClass())] == "":
		return fieldInvalid("setting.class", "is no class", "Send one of the classes, or none to take it back.")
	case in.GetClass() != 0 && !isMCP:
		return fieldInvalid("setting.class", "can be given to tools of a server only", "The class of a builtin is fixed.")
	case loosens(in) && (err != nil || len(digest) != 32 || in.GetProviderDigest() != strings.ToLower(in.GetProviderDigest())):
		return fieldInvalid("setting.provider_digest", "64 hexadecimal digits in lower case are needed", "A class and \"always allow\" hold for one provider digest: send the one that was shown.")
	}
	return nil
}

// ListDispositions implements the contract.
func (s *settingsService) ListDispositions(ctx context.Context, req *permissionv1.ListDispositionsRequest) (*permissionv1.ListDispositionsResponse, error) {
	namespace, err := namespaceOf(ctx, "")
	if err != nil {
		return nil, err
	}
	after, err := readPageToken(req.GetPageToken(), "dispositions", namespace)
	if err != nil {
		return nil, err
	}
	tools, more, err := s.store.ToolSettings(ctx, namespace, after, pageSize(req.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &permissionv1.ListDispositionsResponse{}
	for _, t := range tools {
		out.Settings = append(out.Settings, toolSettingProto(t))
	}
	if more {
		out.NextPageToken = pageToken(tools[len(tools)-1].Tool, "dispositions", namespace)
	}
	return out, nil
}

// ClassifyTools implements the contract.
func (s *settingsService) ClassifyTools(ctx context.Context, req *permissionv1.ClassifyToolsRequest) (*permissionv1.ClassifyToolsResponse, error) {
	namespace, err := namespaceOf(ctx, req.GetNamespace())
	if err != nil {
		return nil, err
	}
	if n := len(req.GetTools()); n > s.cfg.Limits.ClassifyTools {
		return nil, errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "classify_tools_max", int64(s.cfg.Limits.ClassifyTools), int64(n), "Open the turn with fewer tools.")
	}
	version, err := s.store.PolicyVersion(ctx, namespace) // before what it is about: a change in between shows as an older version
	if err != nil {
		return nil, err
	}
	settled, err := s.store.Settings(ctx, namespace)
	if err != nil {
		return nil, err
	}
	mode, err := modeOf(req.GetMode(), req.GetCredentialMaxMode(), settled)
	if err != nil {
		return nil, err
	}
	tools, err := s.allToolSettings(ctx, namespace)
	if err != nil {
		return nil, err
	}
	out := &permissionv1.ClassifyToolsResponse{Mode: mode, PolicyVersion: sha256Hex([]byte(namespace + "\x00" + version))}
	for _, t := range req.GetTools() {
		out.Tools = append(out.Tools, classify(t, tools, settled))
	}
	return out, nil
}

func (s *Server) allToolSettings(ctx context.Context, namespace string) (map[string]*setting.Tool, error) {
	out := map[string]*setting.Tool{}
	for after := ""; ; {
		tools, more, err := s.store.ToolSettings(ctx, namespace, after, maxPage)
		if err != nil {
			return nil, err
		}
		for _, t := range tools {
			out[t.Tool] = &t
			after = t.Tool
		}
		if !more {
			return out, nil
		}
	}
}

func classify(t *permissionv1.ClassifyTool, tools map[string]*setting.Tool, settled setting.Settings) *permissionv1.ToolClassification {
	whole := ""
	if server, _, ok := toolname.Split(t.GetTool()); ok {
		whole = setting.Whole(toolname.Provider(server))
	}
	v := setting.Apply(setting.Fact{
		Tool: t.GetTool(), Lane: t.GetLane(), BuiltinClass: t.GetBuiltinClass(), ProviderDigest: t.GetProviderDigest(), DestructiveHint: t.GetDestructiveHint(),
	}, tools[t.GetTool()], tools[whole])
	if settled.Asks(v.Class) {
		v.AlwaysGate = true // frozen with the turn: taking the floor back acts from the next one
		v.Why += "; the class always asks here"
	}
	return &permissionv1.ToolClassification{Tool: t.GetTool(), Class: v.Class, Disposition: v.Disposition, AlwaysGate: v.AlwaysGate, Why: v.Why}
}

// modeOf is the mode that a turn gets. What is asked for is given or refused, never lowered; what is not asked for is the
// highest that the cap, the credential and the floor allow.
func modeOf(asked, credential commonv1.Mode, settled setting.Settings) (commonv1.Mode, error) {
	if credential == commonv1.Mode_MODE_UNSPECIFIED {
		credential = commonv1.Mode_MODE_MANUAL
	}
	if asked != commonv1.Mode_MODE_UNSPECIFIED {
		switch {
		case auth.ModeRank(asked) > auth.ModeRank(settled.Cap):
			return 0, modeNotAllowed(asked, decide.ModeWord(settled.Cap), "settings")
		case auth.ModeRank(asked) > auth.ModeRank(credential):
			return 0, modeNotAllowed(asked, decide.ModeWord(credential), "credential")
		case settled.Off(asked):
			return 0, modeNotAllowed(asked, "off", "settings")
		}
		return asked, nil
	}
	top := settled.Cap
	if auth.ModeRank(credential) < auth.ModeRank(top) {
		top = credential
	}
	for _, m := range []commonv1.Mode{commonv1.Mode_MODE_BYPASS, commonv1.Mode_MODE_AUTO, commonv1.Mode_MODE_ACCEPT_EDITS, commonv1.Mode_MODE_MANUAL, commonv1.Mode_MODE_PLAN} {
		if auth.ModeRank(m) <= auth.ModeRank(top) && !settled.Off(m) {
			return m, nil
		}
	}
	return 0, modeNotAllowed(top, "off", "settings")
}

func modeNotAllowed(m commonv1.Mode, limit, by string) error {
	return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_MODE_NOT_ALLOWED, strings.ReplaceAll(decide.ModeWord(m), " ", "_"),
		"the mode "+decide.ModeWord(m)+" is not allowed here", "Ask for a lower mode, or let a person raise the cap.", "cap", strings.ReplaceAll(limit, " ", "_"), "by", by)
}
