package permission

import (
	"context"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

// WithoutInterceptors calls everything that decides, grants or settles as a server would that enforces no access rules.
func (s *Server) WithoutInterceptors(ctx context.Context, c *permissionv1.Card) []error {
	_, decide := (&cardService{Server: s}).DecideCard(ctx, &permissionv1.DecideCardRequest{
		Card: c.GetId(), Etag: c.GetEtag(), PreviewSha256: c.GetPreview().GetSha256(), Answer: permissionv1.Answer_ANSWER_APPROVE, Lifetime: permissionv1.Lifetime_LIFETIME_ONCE,
	})
	_, revoke := (&grantService{Server: s}).RevokeGrant(ctx, &permissionv1.RevokeGrantRequest{Grant: "g_x"})
	_, update := (&settingsService{Server: s}).UpdateSettings(ctx, &permissionv1.UpdateSettingsRequest{Settings: &permissionv1.Settings{ModeCap: 5}})
	_, dispose := (&settingsService{Server: s}).SetDisposition(ctx, &permissionv1.SetDispositionRequest{Setting: &permissionv1.ToolSetting{Tool: "run_command", Disposition: 4}})
	return []error{decide, revoke, update, dispose}
}
