package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kind classes a failed Start. In every kind the payload has not run.
type Kind string

const (
	// KindSpec: the request itself is wrong.
	KindSpec Kind = "spec"
	// KindUnavailable: this machine can't give the least level asked for.
	KindUnavailable Kind = "unavailable"
	// KindPath: a path is missing or can't be used.
	KindPath Kind = "path"
	// KindIdentity: a path is no longer the file or folder that was approved.
	KindIdentity Kind = "identity"
	// KindSetup: the kernel refused a step of the set-up.
	KindSetup Kind = "setup"
	// KindExec: the program could not be executed.
	KindExec Kind = "exec"
)

// Error is the typed failure of Start.
type Error struct {
	Kind  Kind   `json:"kind"`
	Stage string `json:"stage"`
	// Path is the exact path concerned, when there is one.
	Path string `json:"path,omitempty"`
	// Errno is the kernel's answer, 0 when the kernel was not the one to refuse.
	Errno syscall.Errno `json:"errno,omitempty"`
	// Missing names the mechanism that the machine lacks (KindUnavailable).
	Missing string `json:"missing,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// ErrnoName is the symbolic name of Errno, such as "EACCES"; empty for 0.
func (e *Error) ErrnoName() string {
	if e.Errno == 0 {
		return ""
	}
	if name := unix.ErrnoName(e.Errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(e.Errno))
}

func (e *Error) Error() string {
	parts := []string{"sandbox: " + e.Stage}
	if e.Missing != "" {
		parts = append(parts, "missing "+e.Missing)
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	if e.Errno != 0 {
		parts = append(parts, e.ErrnoName())
	}
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the errno, so that errors.Is(err, syscall.ENOENT) works.
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

func errnoOf(err error) syscall.Errno {
	var no syscall.Errno
	errors.As(err, &no)
	return no
}

// wrap makes err an *Error of the kind unless it is one already.
func wrap(kind Kind, stage, path string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	out := &Error{Kind: kind, Stage: stage, Path: path, Errno: errnoOf(err)}
	if out.Errno == 0 {
		out.Detail = err.Error()
	}
	return out
}

func specError(field, problem string) *Error {
	return &Error{Kind: KindSpec, Stage: "spec." + field, Detail: problem}
}
