package registry

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// reason is the code and the reason in the contract of a kind of fault.
func reason(kind fault.Kind) (codes.Code, protoreflect.Enum) {
	switch kind {
	case fault.FieldInvalid:
		return codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID
	case fault.LimitExceeded:
		return codes.ResourceExhausted, commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED
	case fault.PageTokenInvalid:
		return codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID
	case fault.CursorInvalid:
		return codes.Aborted, commonv1.ErrorReason_ERROR_REASON_CURSOR_INVALID
	case fault.ShuttingDown:
		return codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN
	case fault.JSONInvalid:
		return codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_JSON_INVALID
	case fault.PeerUnavailable:
		return codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE
	case fault.DeadlineExceeded:
		return codes.DeadlineExceeded, commonv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED
	case fault.ConnectorExists:
		return codes.AlreadyExists, registryv1.ErrorReason_ERROR_REASON_CONNECTOR_EXISTS
	case fault.ConnectorNotFound:
		return codes.NotFound, registryv1.ErrorReason_ERROR_REASON_CONNECTOR_NOT_FOUND
	case fault.ConfiguredInFile:
		return codes.FailedPrecondition, registryv1.ErrorReason_ERROR_REASON_CONFIGURED_IN_FILE
	case fault.ConfigurationInvalid:
		return codes.FailedPrecondition, registryv1.ErrorReason_ERROR_REASON_CONFIGURATION_INVALID
	case fault.VariableNotBound:
		return codes.FailedPrecondition, registryv1.ErrorReason_ERROR_REASON_VARIABLE_NOT_BOUND
	case fault.NameReserved:
		return codes.InvalidArgument, registryv1.ErrorReason_ERROR_REASON_NAME_RESERVED
	default:
		return turnReason(kind)
	}
}

func turnReason(kind fault.Kind) (codes.Code, protoreflect.Enum) {
	switch kind {
	case fault.TurnNotFound:
		return codes.NotFound, registryv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND
	case fault.ToolNotInTurn:
		return codes.NotFound, registryv1.ErrorReason_ERROR_REASON_TOOL_NOT_IN_TURN
	case fault.ConversationTaken:
		return codes.PermissionDenied, registryv1.ErrorReason_ERROR_REASON_CONVERSATION_TAKEN
	case fault.AgentNotAllowed:
		return codes.PermissionDenied, registryv1.ErrorReason_ERROR_REASON_AGENT_NOT_ALLOWED
	case fault.WorkspaceForbidden:
		return codes.InvalidArgument, registryv1.ErrorReason_ERROR_REASON_WORKSPACE_FORBIDDEN
	case fault.WorkspaceOutsideRoots:
		return codes.PermissionDenied, registryv1.ErrorReason_ERROR_REASON_WORKSPACE_OUTSIDE_ROOTS
	case fault.WorkspaceUnusable:
		return codes.InvalidArgument, registryv1.ErrorReason_ERROR_REASON_WORKSPACE_UNUSABLE
	case fault.AliasCollision:
		return codes.AlreadyExists, registryv1.ErrorReason_ERROR_REASON_ALIAS_COLLISION
	case fault.ModeNotAllowed:
		return codes.PermissionDenied, registryv1.ErrorReason_ERROR_REASON_MODE_NOT_ALLOWED
	case fault.TooManyTurns:
		return codes.ResourceExhausted, registryv1.ErrorReason_ERROR_REASON_TOO_MANY_TURNS
	default:
		return codes.Internal, commonv1.ErrorReason_ERROR_REASON_INTERNAL
	}
}

// answer makes what a client gets of an error of the domain. Everything else is left to the kit.
func answer(err error) error {
	var f *fault.Error
	if err == nil || !errors.As(err, &f) || f.Kind == fault.Internal {
		return err
	}
	code, reason := reason(f.Kind)
	if f.Field != "" && code == codes.InvalidArgument {
		made := errs.Field(reason, f.Field, f.Message, f.Next, append([]string{errs.KeyName, f.Name}, f.Metadata...)...)
		return errs.WithCause(made, err)
	}
	kv := f.Metadata
	if f.Field != "" {
		kv = append([]string{errs.KeyField, f.Field}, kv...)
	}
	return errs.WithCause(errs.New(code, reason, f.Name, f.Message, f.Next, kv...), err)
}

// encodeStatus is an error as it is frozen into a turn.
func encodeStatus(err error) []byte {
	b, marshalErr := proto.Marshal(errs.Status(answer(err)).Proto())
	if marshalErr != nil {
		return nil
	}
	return b
}

// maxShown bounds foreign text in an answer. Bytes.
const maxShown = 2000

// visible makes foreign text harmless on a screen: what can't be seen is written as an escape.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if b.Len() > maxShown {
			b.WriteString("…")
			break
		}
		if r == '\n' || unicode.IsGraphic(r) && !unicode.Is(unicode.Cf, r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u{%04X}", r)
		}
	}
	return b.String()
}
