package mcphost

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"

	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
	"github.com/writ-dev/writ/mcp-host-svc/internal/pool"
	"github.com/writ-dev/writ/mcp-host-svc/internal/server"
	"github.com/writ-dev/writ/mcp-host-svc/internal/session"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

// maxProgressText bounds the words of one progress event. Bytes.
const maxProgressText = 4 << 10

// verify checks the writ and what of it can be compared without the server.
func (s *Server) verify(ctx context.Context, c *call) (err error) {
	ctx, span := telemetry.Start(ctx, s.tracer, telemetry.SpanVerify)
	defer func() { telemetry.End(span, err) }()
	claims, err := s.verifier.Verify(ctx, c.token)
	if err != nil {
		return err
	}
	c.claims = claims
	name, tool, ok := toolname.Split(claims.Tool)
	if !ok {
		return &writtoken.Error{Reason: writtoken.ReasonTool, Field: "tool", Want: claims.Tool, Detail: "this is no tool of an MCP server"}
	}
	if claims.Provider != toolname.Provider(name) {
		return &writtoken.Error{Reason: writtoken.ReasonProvider, Field: "provider", Want: claims.Provider, Got: toolname.Provider(name)}
	}
	c.server, c.tool = name, tool
	if err := claims.CheckArguments(c.arguments); err != nil {
		return err
	}
	if kind, ok := class.Parse(claims.Class); !ok || !class.HasEffect(kind) && claims.IssuedAt.Before(s.started.Truncate(time.Second)) {
		// Claims of read classes are held in memory: a writ from before this host started may have been used.
		return &writtoken.Error{Reason: writtoken.ReasonExpired, Field: "iat", Detail: "the writ is older than this executor"}
	}
	return rawjson.CheckObject(c.arguments, rawjson.Limits{MaxBytes: s.limits.ArgumentsMaxBytes})
}

// root is the folder that the session is told, by name and identity.
func root(claims *writtoken.Claims) (string, error) {
	want := claims.Scopes.MCPRoot
	if want == nil {
		return "", nil
	}
	st, err := os.Lstat(want.Path)
	if err != nil {
		return "", &writtoken.Error{Reason: writtoken.ReasonScopes, Field: "scopes.mcp_root", Want: want.String(), Got: err.Error()}
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() {
		return "", &writtoken.Error{Reason: writtoken.ReasonScopes, Field: "scopes.mcp_root", Want: want.String(), Got: "no folder"}
	}
	return want.Path, claims.CheckRoot(&writtoken.Folder{Path: want.Path, Dev: sys.Dev, Ino: sys.Ino})
}

// runCall waits for the session, compares the contract, claims, calls and seals.
func (s *Server) runCall(ctx context.Context, c *call) (*commonv1.Outcome, error) {
	ctx, span := telemetry.StartKind(ctx, s.tracer, trace.SpanKindClient, telemetry.SpanToolsCall(c.tool), telemetry.MCPMethodName.String("tools/call"),
		telemetry.GenAIOperationName.String(telemetry.OperationExecuteTool), telemetry.GenAIToolName.String(c.tool), telemetry.GenAIToolCallID.String(c.claims.Call),
		telemetry.NetworkTransport.String("pipe"), telemetry.Tool.String(c.claims.Tool), telemetry.Call.String(c.key().Call), telemetry.WritID.String(c.claims.ID))
	defer span.End()
	lease, err := s.acquire(ctx, c)
	if err != nil {
		return s.refuse(ctx, c, causeOf(ctx, err))
	}
	defer lease.Release()
	live := lease.Session
	if err := s.sameContract(ctx, c, live); err != nil {
		return s.refuse(ctx, c, causeOf(ctx, err))
	}
	claim, err := s.claim(ctx, c)
	if err != nil {
		return s.refuse(ctx, c, causeOf(ctx, err))
	}
	c.claimed = true
	enforced := enforcementOf(live.Enforced(), live.PID())
	span.SetAttributes(telemetry.Isolation.String(live.Enforced().Isolation), telemetry.MCPProtocolVersion.String(live.Info().ProtocolVersion))
	begin := s.now()
	s.add(c, false, func(e event) {
		e.Event = &commonv1.ExecutionEvent_Started{Started: &commonv1.ExecutionStarted{Enforcement: enforced}}
	})
	result, err := s.call(ctx, c, live)
	o := s.outcome(ctx, c, result, err)
	o.Enforcement, o.Credential = enforced, commonv1.CredentialFact_CREDENTIAL_FACT_NONE // stdio presents none (R63)
	o.BeginTime, o.EndTime = timestamppb.New(begin), timestamppb.New(s.now())
	span.SetAttributes(telemetry.Outcome.String(o.GetState().String()))
	if o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR {
		span.SetAttributes(telemetry.ErrorType.String("tool_error"))
	}
	return s.seal(ctx, c, o, claim)
}

// acquire waits for the server's session with the call's folder (R66, R68).
func (s *Server) acquire(ctx context.Context, c *call) (*server.Lease, error) {
	folder, err := root(c.claims)
	if err != nil {
		return nil, err
	}
	ctx, span := telemetry.Start(ctx, s.tracer, telemetry.SpanQueue)
	lease, err := s.servers.Acquire(ctx, server.Key{Namespace: c.claims.Namespace, Name: c.server}, pool.Use{
		Folder: folder,
		Waiting: func(pool.Snapshot) {
			s.add(c, true, func(e event) {
				e.Event = &commonv1.ExecutionEvent_Waiting{Waiting: &commonv1.ExecutionWaiting{What: "waiting for MCP server " + c.server}}
			})
		},
	})
	telemetry.End(span, err)
	return lease, err
}

// sameContract compares what the model saw with what the server is now, before a byte of the call reaches it (R32). A
// server that said that its tools changed is asked again first.
func (s *Server) sameContract(ctx context.Context, c *call, live *server.Live) error {
	if live.ProviderDigest != c.claims.ProviderDigest {
		return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_PROVIDER_CHANGED, c.claims.Provider,
			c.claims.Tool+" was not called: what is started for "+c.claims.Provider+" changed after the turn began", "open a new turn to use it",
			"seen", c.claims.ProviderDigest, "now", live.ProviderDigest, "writ_reason", string(writtoken.ReasonProvider))
	}
	known, err := live.Newest(ctx, false)
	if err != nil {
		return err
	}
	for _, t := range known.Listing.Tools {
		if t.Name != c.tool {
			continue
		}
		if now := fingerprint.Wire(t.Raw); now != c.claims.Fingerprint {
			return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_FINGERPRINT_CHANGED, c.claims.Tool,
				c.claims.Tool+" was not called: the server changed this tool after the turn began", "open a new turn to use the new contract",
				"seen", c.claims.Fingerprint, "now", now, "writ_reason", string(writtoken.ReasonFingerprint))
		}
		return nil
	}
	return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_TOOL_GONE, c.claims.Tool,
		c.claims.Tool+" was not called: the server has no such tool any more", "open a new turn to see its tools", "writ_reason", string(writtoken.ReasonTool))
}

// claim looks at the time once more, since the queue took some, and takes the call's mark.
func (s *Server) claim(ctx context.Context, c *call) (*evidencev1.Claim, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := s.verifier.CheckTime(c.claims); err != nil {
		return nil, err
	}
	if !s.used.use(c.claims.ID, c.claims.Expiry, s.now()) {
		return nil, claimTaken(c.key().Call, s.receiptOf(ctx, c), "its writ was used before")
	}
	claim, err := executor.Claim(ctx, s.clients.Claims, c.token, func(receipt string) error {
		return claimTaken(c.key().Call, receipt, "it was claimed before")
	})
	var away executor.AwayError
	if errors.As(err, &away) {
		s.used.forget(c.claims.ID) // nothing ran: the same writ is good for another try
	}
	return claim, err
}

// receiptOf is the receipt of a call that was claimed before, "" where there is none yet, or evidence can't be asked.
func (s *Server) receiptOf(ctx context.Context, c *call) string {
	answer, err := s.clients.Claims.GetClaim(ctx, &evidencev1.GetClaimRequest{Call: c.key().Call, Namespace: c.claims.Namespace})
	if err != nil {
		return ""
	}
	return answer.GetClaim().GetReceipt()
}

// call sends the very bytes that were verified.
func (s *Server) call(ctx context.Context, c *call, live *server.Live) (session.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.CallTimeout, errTimedOut)
	defer cancel()
	traceparent, tracestate := telemetry.Traceparent(ctx)
	if traceparent == "" {
		traceparent = c.claims.Trace // no tracer here: the server still joins the call's trace
	}
	result, err := live.Call(ctx, session.Call{
		Tool: c.tool, Arguments: c.arguments, TraceParent: traceparent, TraceState: tracestate,
		Progress: func(params []byte) { s.progress(c, params) },
	})
	return result, causeOf(ctx, err)
}

func (s *Server) progress(c *call, params []byte) {
	number := func(name string) float64 {
		raw, _ := jsonview.Get(params, name)
		v, _ := strconv.ParseFloat(string(raw), 64)
		return v
	}
	text, _ := jsonview.GetString(params, "message")
	if len(text) > maxProgressText {
		text = text[:maxProgressText]
	}
	p := &commonv1.Progress{Progress: number("progress"), Total: number("total"), Message: toUTF8(text)}
	s.add(c, true, func(e event) { e.Event = &commonv1.ExecutionEvent_Progress{Progress: p} })
}

var errTimedOut = errors.New("the call was not answered in time")

// outcome says how the call ended, from the server's answer or from what kept it from answering.
func (s *Server) outcome(ctx context.Context, c *call, result session.Result, err error) *commonv1.Outcome {
	const failed = commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR
	var cancelled *cancelledError
	var rpc *wire.RPCError
	switch {
	case err == nil && !result.IsError:
		return &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, Result: result.Raw}
	case err == nil:
		o := outcomeOf(failed, errs.New(codes.Unknown, mcphostv1.ErrorReason_ERROR_REASON_TOOL_FAILED, c.claims.Tool, "the tool answered that it failed",
			"read its answer and correct the call"))
		o.Result = result.Raw
		return o
	case errors.As(err, &cancelled), errors.Is(err, errShutdown):
		return outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, errs.New(codes.Canceled, mcphostv1.ErrorReason_ERROR_REASON_CANCELLED, c.key().Call,
			"the call was cancelled after it had begun; its effect may have happened", "look at what it has done before you call again", "begun", "true"))
	case errors.Is(err, errTimedOut):
		return outcomeOf(failed, errs.New(codes.DeadlineExceeded, mcphostv1.ErrorReason_ERROR_REASON_TIMED_OUT, c.claims.Tool,
			"the server did not answer in time; the effect may have happened", "look at what it has done before you call again",
			errs.KeyLimitName, "call_timeout_ms", errs.KeyLimit, strconv.FormatInt(s.limits.CallTimeout.Milliseconds(), 10)))
	case errors.As(err, &rpc):
		return outcomeOf(failed, problem(c.server, err))
	}
	s.log.WarnContext(ctx, "a call ended without an answer", "server", c.server, "error", err)
	return outcomeOf(failed, problem(c.server, err))
}

func outcomeOf(state commonv1.OutcomeState, err error) *commonv1.Outcome {
	o := &commonv1.Outcome{State: state}
	if err != nil {
		o.Status = errs.Status(err).Proto()
	}
	return o
}
