package mcphost

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/internal/sandbox"

	"github.com/writ-dev/writ/mcp-host-svc/internal/pool"
	"github.com/writ-dev/writ/mcp-host-svc/internal/provider"
	"github.com/writ-dev/writ/mcp-host-svc/internal/server"
	"github.com/writ-dev/writ/mcp-host-svc/internal/session"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

// defaultNamespace is the tenant of the embedded form.
const defaultNamespace = "default"

var errShutdown = errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, ServiceName, "the host shuts down", "call again in a moment")

// problem turns what went wrong with a server into an error of the contract.
func problem(name string, err error) error {
	var (
		missing  *provider.NotFoundError
		machine  *sandbox.Error
		listing  *session.ListError
		silent   *server.ListTimeoutError
		start    *session.StartError
		rpc      *wire.RPCError
		long     *wire.TooLongError
		closed   *wire.ClosedError
		asking   *session.InputRequiredError
		budget   *pool.StartTooLongError
		contract *errs.Error
	)
	switch {
	case errors.As(err, &contract):
		return err
	case errors.Is(err, server.ErrShutdown):
		return errShutdown
	case errors.Is(err, server.ErrNotFound):
		return errs.New(codes.NotFound, mcphostv1.ErrorReason_ERROR_REASON_SERVER_NOT_FOUND, name, "there is no MCP server "+strconv.Quote(name),
			"see `writ connector list`; add it with `writ connector add`")
	case errors.Is(err, server.ErrDisabled):
		return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_SERVER_DISABLED, name, "MCP server "+strconv.Quote(name)+" is disabled",
			"enable it with `writ connector enable "+name+"`")
	case errors.Is(err, server.ErrTransport):
		return transportProblem(provider.HTTP)
	case errors.As(err, &missing):
		return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND, missing.Command, missing.Error(),
			"install the program, or give its absolute path", "searched", missing.Searched, "server", name)
	case errors.As(err, &budget):
		return errs.New(codes.DeadlineExceeded, mcphostv1.ErrorReason_ERROR_REASON_SERVER_SILENT, name, budget.Error(),
			"see `writ connector logs "+name+"`; a package that is fetched at every start is better installed once",
			errs.KeyLimitName, "start_timeout_ms", errs.KeyLimit, strconv.FormatInt(budget.Budget.Limit.Milliseconds(), 10))
	case errors.As(err, &silent):
		return errs.New(codes.DeadlineExceeded, mcphostv1.ErrorReason_ERROR_REASON_SERVER_SILENT, name, silent.Error(),
			"see `writ connector logs "+name+"`", errs.KeyLimitName, "mcp_list_timeout_ms", errs.KeyLimit, strconv.FormatInt(silent.Limit.Milliseconds(), 10))
	case errors.As(err, &machine):
		return sandboxProblem(name, machine)
	case errors.As(err, &start):
		return errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SERVER_START_FAILED, name, start.Error(),
			"see `writ connector logs "+name+"`, correct the connector, and try again", "stderr", tail(start.Log))
	case errors.As(err, &listing):
		return listProblem(name, listing)
	case errors.As(err, &rpc):
		return errs.New(codes.Unknown, mcphostv1.ErrorReason_ERROR_REASON_SERVER_ERROR, name, rpc.Error(),
			"read the server's message and correct the call", "code", strconv.FormatInt(rpc.Code, 10))
	case errors.As(err, &long):
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "mcp_line_max_bytes", long.Limit, long.Got, "ask the tool for less at a time; the effect may have happened")
	case errors.As(err, &closed):
		return errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SERVER_DIED, name, closed.Error(),
			"see `writ connector logs "+name+"`; the next call starts the server again")
	case errors.As(err, &asking):
		return errs.New(codes.Unimplemented, mcphostv1.ErrorReason_ERROR_REASON_SERVER_PROTOCOL, name, asking.Error(),
			"use a tool that works without it", "problem", "input required: "+asking.Method)
	}
	return err
}

func listProblem(name string, e *session.ListError) error {
	switch e.Kind {
	case session.NoToolsArray:
		return errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SERVER_PROTOCOL, name, e.Error(), "report it to the server's author", "problem", e.Error())
	case session.CursorRepeats:
		return errs.New(codes.ResourceExhausted, commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, name, e.Error(), "report it to the server's author",
			errs.KeyLimitName, "mcp_list_max_pages", "cursor", e.Name)
	}
	limit := "mcp_" + strings.ToLower(string(e.Kind))
	return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, limit, e.Limit, e.Got, "let the server list fewer tools, or raise the limit")
}

func sandboxProblem(name string, e *sandbox.Error) error {
	if e.Kind == sandbox.KindUnavailable {
		return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE, name, e.Error(),
			"see `writ doctor`; a person may accept that this provider runs without isolation", "wanted", string(sandbox.LevelGuarded), "problem", e.Error())
	}
	return errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SERVER_START_FAILED, name, e.Error(),
		"correct the connector, and try again", "errno", e.ErrnoName(), "path", e.Path)
}

func transportProblem(transport string) error {
	return errs.New(codes.Unimplemented, mcphostv1.ErrorReason_ERROR_REASON_TRANSPORT_NOT_SUPPORTED, transport,
		"MCP servers over "+transport+" are not served by this release", "run the server locally over stdio; a bridge such as `npx mcp-remote URL` does that")
}

// refusal turns what kept a call from running into an error of the contract.
func refusal(name string, err error) error {
	var token *writtoken.Error
	var json *rawjson.Error
	switch {
	case errors.As(err, &token):
		return errs.New(codes.PermissionDenied, mcphostv1.ErrorReason_ERROR_REASON_WRIT_REFUSED, token.Field, token.Error(), token.Reason.Next(),
			"writ_reason", string(token.Reason), "want", token.Want, "got", token.Got)
	case errors.As(err, &json):
		return errs.Field(commonv1.ErrorReason_ERROR_REASON_JSON_INVALID, "arguments", json.Error(), "send one JSON object")
	case errors.Is(err, context.DeadlineExceeded):
		return errs.New(codes.DeadlineExceeded, mcphostv1.ErrorReason_ERROR_REASON_TIMED_OUT, name, err.Error(), "call again")
	}
	return problem(name, err)
}

// tail is the end of a log as metadata takes it.
func tail(log string) string {
	log = strings.TrimSpace(log)
	const most = 1500
	return log[max(0, len(log)-most):]
}
