package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep ends the processes that a killed owner left: those whose environment
// holds WRIT_SCOPE=scopePrefix…. It reports them, and returns when they are
// gone or ctx ends. Sandboxes in a pid namespace end with their owner by
// themselves; what is found here are mostly host runs. The caller makes sure
// that no live owner uses the prefix. Needs the right to read the environment
// (same user, or root).
func Sweep(ctx context.Context, scopePrefix string) ([]Survivor, error) {
	if scopePrefix == "" {
		return nil, specError("scope", "an empty prefix would match every run")
	}
	defer sweepCgroups()
	seen := map[int]bool{}
	var found []Survivor
	for {
		left := marked(scopePrefix)
		if len(left) == 0 {
			return found, nil
		}
		for _, s := range left {
			if !seen[s.PID] {
				seen[s.PID] = true
				found = append(found, s)
			}
			_ = unix.Kill(s.PID, unix.SIGKILL) // ESRCH: gone by itself
		}
		select {
		case <-ctx.Done():
			return found, fmt.Errorf("sandbox: %d processes of %q are still alive: %w", len(left), scopePrefix, context.Cause(ctx))
		case <-time.After(settleStep):
		}
	}
}

// marked lists live processes with the mark, but this one and its ancestors,
// which may themselves be somebody's sandbox.
func marked(prefix string) []Survivor {
	all := processes()
	parent := make(map[int]int, len(all))
	for _, s := range all {
		parent[s.PID] = s.PPID
	}
	own := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !own[pid]; pid = parent[pid] {
		own[pid] = true
	}
	var out []Survivor
	for _, s := range all {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.PID))
		if err != nil || own[s.PID] {
			continue
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if scope, ok := strings.CutPrefix(string(v), "WRIT_SCOPE="); ok && strings.HasPrefix(scope, prefix) {
				s.Comm, s.Argv = name(s.PID)
				out = append(out, s)
				break
			}
		}
	}
	return out
}
