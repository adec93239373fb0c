package session

import (
	"fmt"
	"strings"
)

// StartError says that a server did not come up, and what was waited for.
type StartError struct {
	Server string
	// Waiting is what the start was doing, such as "waiting for the answer to initialize".
	Waiting string
	Cause   error
	// Log is the end of what the server wrote; it says more than any cause.
	Log string
}

func (e *StartError) Error() string {
	text := fmt.Sprintf("MCP server %q did not start: %s: %v", e.Server, e.Waiting, e.Cause)
	if l := lastLines(e.Log, 3); l != "" {
		text += "; its last output: " + l
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Cause }

func lastLines(log string, n int) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(log, "\uFFFD")), "\n")
	out := strings.Join(lines[max(0, len(lines)-n):], " | ")
	const most = 600
	if len(out) > most {
		out = "…" + strings.ToValidUTF8(out[len(out)-most:], "")
	}
	return out
}

// ListError says that a listing of tools could not be taken as it is. The
// listing before it stays in force; a part of a listing is never used.
type ListError struct {
	Kind  ListErrorKind
	Limit int64  // for the kinds that are limits
	Got   int64  // what was seen when the limit was reached
	Name  string // the cursor, for CursorRepeats
}

// ListErrorKind is why a listing was refused.
type ListErrorKind string

// The kinds. The limits are settings of the same names in lower case.
const (
	TooManyPages  ListErrorKind = "LIST_MAX_PAGES"
	TooManyTools  ListErrorKind = "LIST_MAX_TOOLS"
	TooManyBytes  ListErrorKind = "LIST_MAX_BYTES"
	CursorRepeats ListErrorKind = "CURSOR_REPEATS"
	NoToolsArray  ListErrorKind = "NO_TOOLS_ARRAY"
)

func (e *ListError) Error() string {
	switch e.Kind {
	case CursorRepeats:
		return fmt.Sprintf("tools/list gave the cursor %q twice: its pages never end", e.Name)
	case NoToolsArray:
		return "the answer to tools/list holds no array of tools"
	}
	return fmt.Sprintf("tools/list is larger than the limit %s = %d (got %d)", strings.ToLower(string(e.Kind)), e.Limit, e.Got)
}

// InputRequiredError says that a server wants something from its client in the
// middle of a call that Writ does not give.
type InputRequiredError struct{ Method string }

func (e *InputRequiredError) Error() string {
	return fmt.Sprintf("the server asks for %s in the middle of the call; Writ offers servers the session's folder and nothing else", e.Method)
}
