package permission

import (
	"errors"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/store"
	"strconv"
	"strings"
)

func turnNotFound(turn string) error {
	return errs.New(codes.NotFound, permissionv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND, turn, "there is no such turn that you may use", "Open a turn with the same credential.")
}

func turnEnded(turn string) error {
	return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_TURN_ENDED, turn, "the turn ended", "Open a new turn.")
}

func toolNotFound(tool, turn string) error {
	return errs.New(codes.NotFound, permissionv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, tool, "the turn has no such tool",
		"See the turn's tools; another turn may have others.", "turn", turn)
}

func callChanged(name, what string) error {
	return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_CALL_CHANGED, name, "the call's name was used before with "+what,
		"Use a new call id for another call.")
}

func cardNotFound(id string) error {
	return errs.New(codes.NotFound, permissionv1.ErrorReason_ERROR_REASON_CARD_NOT_FOUND, id, "there is no such card that you may see", "List the cards.")
}

func cardDecided(c card.Card) error {
	return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_CARD_DECIDED, c.ID,
		"the card is "+stateWord(c.State)+" already, by "+nameOf(c), "Nothing is left to decide here.", "by", nameOf(c), "state", stateWord(c.State))
}

func nameOf(c card.Card) string {
	if c.DecidedBy.ID == "" {
		return ServiceName
	}
	return c.DecidedBy.ID
}

func stateWord(s permissionv1.CardState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "CARD_STATE_"))
}

func etagMismatch(name string) error {
	return errs.New(codes.Aborted, commonv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, name, "it changed since it was read", "Read it again, then decide again.")
}

func grantNotFound(id string) error {
	return errs.New(codes.NotFound, permissionv1.ErrorReason_ERROR_REASON_GRANT_NOT_FOUND, id, "there is no such grant here", "List the grants.")
}

func outsideWorkspace(path string) error {
	return errs.New(codes.InvalidArgument, permissionv1.ErrorReason_ERROR_REASON_OUTSIDE_WORKSPACE, path, "the folder is outside the turn's workspace",
		"Use a folder in the workspace, or open a turn with another workspace.", errs.KeyField, "arguments.cwd")
}

func workspaceUnavailable(name string) error {
	return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_WORKSPACE_UNAVAILABLE, name, "the turn has no workspace",
		"Open a turn with a workspace, or leave cwd out: the command then runs in a private folder.")
}

func fieldInvalid(field, problem, next string) error {
	return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, field, problem, next)
}

func accessDenied(method, needs string) error {
	return errs.New(codes.PermissionDenied, commonv1.ErrorReason_ERROR_REASON_ACCESS_DENIED, method, "this is not yours to call", "It is for "+needs+".", "needs", needs)
}

func shuttingDown() error {
	return errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, ServiceName, "the server is stopping", "Connect again and watch with the last cursor.")
}

func cursorInvalid(cursor string) error {
	return errs.New(codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_CURSOR_INVALID, cursor, "the cursor is not of this stream", "Watch again without a cursor.")
}

// jsonInvalid says what is wrong with the arguments.
func jsonInvalid(err error) error {
	var e *rawjson.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Kind == rawjson.TooLarge {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "arguments_max_bytes", int64(e.Limit), int64(e.Got), "Send less, or put the content into a file and name it.")
	}
	return errs.Field(commonv1.ErrorReason_ERROR_REASON_JSON_INVALID, "arguments", e.Error(), "Send one JSON object.",
		"kind", e.Kind.Word(), "offset", strconv.Itoa(e.Offset), "path", e.Path)
}

// commandInvalid says what is wrong with run_command's arguments.
func commandInvalid(err error) error {
	var e *command.Error
	if !errors.As(err, &e) {
		return err
	}
	field := "arguments"
	if e.Field != "" {
		field += "." + e.Field
	}
	return errs.Field(permissionv1.ErrorReason_ERROR_REASON_ARGUMENTS_INVALID, field, e.Detail, e.Next, "problem", string(e.Problem))
}

// stored turns what a store says into an answer.
func stored(err error, name string) error {
	var limit *store.LimitError
	switch {
	case errors.As(err, &limit):
		return errs.Limit(permissionv1.ErrorReason_ERROR_REASON_TOO_MANY_CARDS, limit.Name, limit.Limit, limit.Got, "Answer or cancel open cards first.")
	case errors.Is(err, store.ErrVersion):
		return etagMismatch(name)
	}
	return err
}
