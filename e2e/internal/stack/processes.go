package stack

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a process by its id and start, so that an id that is used again is not taken for it.
type process struct {
	pid   int
	start string
}

// table is every process with its parent.
func table() map[process]int {
	out := map[process]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, path := range dirs {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		_, rest, ok := strings.Cut(string(b), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 20 || fields[0] == "Z" {
			continue // a zombie runs nothing and waits for its parent only
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		out[process{pid, fields[19]}] = parent
	}
	return out
}

// Family lists the processes below the server, the server not among them.
func (s *Stack) Family() []int {
	var out []int
	for p := range s.below() {
		out = append(out, p.pid)
	}
	return out
}

func (s *Stack) below() map[process]bool {
	all := table()
	in := map[int]bool{s.PID(): true}
	out := map[process]bool{}
	for grown := true; grown; {
		grown = false
		for p, parent := range all {
			if in[parent] && !in[p.pid] {
				in[p.pid], out[p], grown = true, true, true
			}
		}
	}
	return out
}

// remember notes who has to be gone once the server is.
func (s *Stack) remember() {
	for p := range s.below() {
		s.family[p] = true
	}
}

// left lists those of the family that are alive, and whoever carries the mark of this deployment.
func (s *Stack) left() []string {
	var out []string
	for p := range table() {
		if s.family[p] || s.marked(p.pid) {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			out = append(out, fmt.Sprintf("%d %s", p.pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return out
}

// marked tells whether the process was started by a launcher of this deployment: WRIT_SCOPE names it, or the folder of
// its MCP server lies in this home.
func (s *Stack) marked(pid int) bool {
	if pid == os.Getpid() {
		return false
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if scope, ok := strings.CutPrefix(string(v), "WRIT_SCOPE="); ok && strings.Contains(scope, s.Deployment) {
			return true
		}
	}
	return false
}

// NothingLeft fails the test when something that the server started outlives it.
func (s *Stack) NothingLeft() {
	s.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		left := s.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("left behind (rule 6: no process outlives its owner):\n  %s", strings.Join(left, "\n  "))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
