package permission_test

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	permission "github.com/writ-dev/writ/permission-svc"
	"github.com/writ-dev/writ/permission-svc/permissiontest"
)

const (
	manual = commonv1.Mode_MODE_MANUAL
	auto   = commonv1.Mode_MODE_AUTO
	plan   = commonv1.Mode_MODE_PLAN
	bypass = commonv1.Mode_MODE_BYPASS
	once   = permissionv1.Lifetime_LIFETIME_ONCE
)

// clock is a clock that a test moves.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// house is a running service with the agent "bot" and the person "alice".
type house struct {
	*permissiontest.Server
	t     *testing.T
	clock *clock
}

func start(t *testing.T, cfg permission.Config, opts ...permission.Option) *house {
	t.Helper()
	c := &clock{}
	return &house{permissiontest.Start(t, cfg, append([]permission.Option{permission.WithClock(c.now)}, opts...)...), t, c}
}

// wide opens the cap, as a person would, and then a turn.
func (h *house) wide() {
	h.t.Helper()
	h.settings(func(s *permissionv1.Settings) { s.ModeCap = bypass })
}

func (h *house) settings(change func(*permissionv1.Settings)) {
	h.t.Helper()
	c := permissionv1.NewSettingsServiceClient(h.Approver("alice"))
	now, err := c.GetSettings(h.t.Context(), &permissionv1.GetSettingsRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	change(now.GetSettings())
	if _, err := c.UpdateSettings(h.t.Context(), &permissionv1.UpdateSettingsRequest{Settings: now.GetSettings()}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) dispose(s *permissionv1.ToolSetting) {
	h.t.Helper()
	if _, err := permissionv1.NewSettingsServiceClient(h.Approver("alice")).SetDisposition(h.t.Context(), &permissionv1.SetDispositionRequest{Setting: s}); err != nil {
		h.t.Fatal(err)
	}
}

// turn opens a turn of "bot" with the tools write_file, read_file and run_command.
func (h *house) turn(id string, mode commonv1.Mode, change ...func(*registryv1.Turn)) {
	t := permissiontest.Turn(id, mode, permissiontest.MCPTool("write_file"), permissiontest.MCPTool("read_file"), permissiontest.RunCommand())
	for _, f := range change {
		f(t)
	}
	h.Registry.Open(t)
}

func (h *house) try(conn grpc.ClientConnInterface, turn, call, tool, args string) (*permissionv1.AuthorizeResponse, error) {
	return permissionv1.NewAuthorizationServiceClient(conn).Authorize(h.t.Context(), &permissionv1.AuthorizeRequest{Turn: turn, Call: call, Tool: tool, Arguments: []byte(args)})
}

func (h *house) authorize(turn, call, tool, args string) *permissionv1.AuthorizeResponse {
	h.t.Helper()
	r, err := h.try(h.Caller("bot"), turn, call, tool, args)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// ask authorizes a call that has to ask, and returns its card.
func (h *house) ask(turn, call, tool, args string) *permissionv1.Card {
	h.t.Helper()
	c := h.authorize(turn, call, tool, args).GetPending().GetCard()
	if c == nil {
		h.t.Fatalf("%s/%s did not ask", turn, call)
	}
	return c
}

func (h *house) write(turn, call string) *permissionv1.AuthorizeResponse {
	h.t.Helper()
	return h.authorize(turn, call, "mcp.fs.write_file", `{"path":"a"}`)
}

func (h *house) decide(conn grpc.ClientConnInterface, c *permissionv1.Card, answer permissionv1.Answer, lifetime permissionv1.Lifetime) (*permissionv1.Card, error) {
	r, err := permissionv1.NewCardServiceClient(conn).DecideCard(h.t.Context(), &permissionv1.DecideCardRequest{
		Card: c.GetId(), Etag: c.GetEtag(), PreviewSha256: c.GetPreview().GetSha256(), Answer: answer, Lifetime: lifetime, Reason: "because",
	})
	return r.GetCard(), err
}

func (h *house) approve(c *permissionv1.Card, lifetime permissionv1.Lifetime) *permissionv1.Card {
	h.t.Helper()
	out, err := h.decide(h.Approver("alice"), c, permissionv1.Answer_ANSWER_APPROVE, lifetime)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *house) card(id string) *permissionv1.Card {
	h.t.Helper()
	r, err := permissionv1.NewCardServiceClient(h.Approver("alice")).GetCard(h.t.Context(), &permissionv1.GetCardRequest{Card: id})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.GetCard()
}

// verify checks a writ as an executor would.
func (h *house) verify(r *permissionv1.AuthorizeResponse) *writtoken.Claims {
	h.t.Helper()
	a := r.GetAllowed()
	if a == nil {
		h.t.Fatalf("not allowed: %v", r)
	}
	v := writtoken.Verifier{
		Issuers: map[string]writtoken.KeySource{h.Permission.Issuer(): writtoken.StaticKeys(h.Permission.SigningKeys())}, Audience: "urn:writ:local:" + a.GetExecutor(), Now: h.clock.now,
	}
	claims, err := v.Verify(context.Background(), a.GetWrit())
	if err != nil {
		h.t.Fatal(err)
	}
	return claims
}

// word is an answer in one word: allowed, denied, cancelled, stale or pending, with the reason where there is one.
func word(r *permissionv1.AuthorizeResponse) string {
	d := r.GetDenied()
	reason := strings.Trim(" "+errs.ReasonOf(statusError(d)), " ")
	switch {
	case r.GetAllowed() != nil:
		return "allowed"
	case r.GetPending() != nil:
		return "pending"
	case d.GetStale():
		return "stale " + errs.Metadata(statusError(d))["changed"]
	case d.GetCancelled():
		return "cancelled"
	}
	return "denied " + reason
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	if got := errs.ReasonOf(err); got != reason {
		t.Fatalf("%v: reason %q, want %s", err, got, reason)
	}
	if errs.Metadata(err)["next"] == "" {
		t.Errorf("%v does not say what to do next", err)
	}
}

func (h *house) want(r *permissionv1.AuthorizeResponse, want string) {
	h.t.Helper()
	if got := word(r); got != want {
		h.t.Fatalf("%s, want %s: %v", got, want, r)
	}
}

func decode(s string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(s) }
