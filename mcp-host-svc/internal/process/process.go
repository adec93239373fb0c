// Package process is what a session needs to know about the process that serves
// it. The service starts it through the kit's sandbox; tests start it plainly.
package process

import (
	"context"
	"io"
	"time"
)

// Spec says what is started. Nothing is inherited: what is not named here does
// not reach the child.
type Spec struct {
	Server string   // the connector's name, for messages
	Path   string   // absolute path of the executable
	Argv   []string // argv, the name of the program first
	Env    []string // NAME=value, the whole environment
	Dir    string   // absolute working folder
	// Folder is the folder of the session, which the server may use; empty: none.
	Folder string
	// HostAccepted says that a person accepted this very provider without isolation.
	HostAccepted bool
}

// Enforced says what was read back as in force for the process.
type Enforced struct {
	Isolation  string   // the sandbox's word for the level: "guarded", "host"
	Network    string   // "open" or "none"
	Mechanisms []string // how each is enforced
	Degraded   []string // what was wanted and could not be had
}

// Exit says how a process ended and what was found of its children.
type Exit struct {
	Code      int    // exit code; -1 when it was ended by a signal
	Signal    string // the signal's name; empty when it ended by itself
	Survivors int    // processes of the server that outlived it and were ended
	CleanedUp bool   // nothing of it is left
}

// Process is one running server.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	PID() int // as the host sees it
	// Exited is closed when the main process has ended.
	Exited() <-chan struct{}
	// Stop ends the process and everything that it started, and waits until
	// nothing is left. It first waits up to grace for the process to end by
	// itself, its standard input being closed. It may be called more than once.
	Stop(grace time.Duration) Exit
	Enforced() Enforced
}

// Starter starts processes. The context bounds the start only, not the life of
// the process.
type Starter interface {
	Start(ctx context.Context, spec Spec) (Process, error)
}
