package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetUndumpable keeps other processes of the same user from reading this
// process's memory and environment and from tracing it. Every service calls
// it at start-up. It does not survive an exec.
func SetUndumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: PR_SET_DUMPABLE: %w", err)
	}
	return nil
}
