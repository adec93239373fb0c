package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxSurvivors  = 256
	maxArgvBytes  = 2048
	settle        = 50 * time.Millisecond // for helpers that end with their leader
	settleStep    = 2 * time.Millisecond
	cleanUpWithin = 5 * time.Second // without a pid namespace only
)

type leaderExit struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// supervise forwards the owner's orders, reaps, and on the leader's end lists
// who is left, kills them and reports. The end of the control socket means
// that the owner is gone: everything dies.
func (p *pidOne) supervise(leader int) int {
	exits := make(chan leaderExit, 1)
	go reap(leader, exits)
	orders := make(chan ownerFrame)
	go func() {
		defer close(orders)
		for {
			var f ownerFrame
			if readFrame(p.ctrl, &f) != nil {
				return
			}
			orders <- f
		}
	}()
	var deadline <-chan time.Time
	var survivors []Survivor
	for {
		select {
		case f, alive := <-orders:
			switch {
			case !alive:
				p.killAll()
				return 1
			case f.Kind == "terminate" && deadline == nil:
				deadline = time.After(time.Duration(f.GraceMS) * time.Millisecond)
				p.signalAll(leader, unix.SIGTERM)
			case f.Kind == "kill":
				survivors = p.others(leader)
				_ = unix.Kill(leader, unix.SIGKILL) // gone already: its exit is on the way
			}
		case <-deadline:
			survivors = p.others(leader)
			_ = unix.Kill(leader, unix.SIGKILL)
		case e := <-exits:
			return p.finish(leader, e, survivors)
		}
	}
}

func reap(leader int, exits chan<- leaderExit) {
	for {
		var ws unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &ws, unix.WALL, &ru)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return // ECHILD: nobody is left
		}
		if pid == leader && (ws.Exited() || ws.Signaled()) {
			exits <- leaderExit{ws, ru}
		}
	}
}

func (p *pidOne) finish(leader int, e leaderExit, before []Survivor) int {
	left := before
	if left == nil {
		left = p.others(leader)
		for end := time.Now().Add(settle); len(left) > 0 && time.Now().Before(end); left = p.others(leader) {
			time.Sleep(settleStep)
		}
	}
	clean := p.killAll()
	r := &exitReport{Code: -1, Survivors: left, CleanedUp: clean, MaxRSS: e.usage.Maxrss << 10,
		CPUNanos: e.usage.Utime.Nano() + e.usage.Stime.Nano()}
	if e.status.Exited() {
		r.Code = e.status.ExitStatus()
	} else {
		r.Signal = int(e.status.Signal())
	}
	if writeFrame(p.ctrl, initFrame{Kind: "exit", Exit: r}) != nil {
		return 1
	}
	return 0
}

func (p *pidOne) isolatedPIDs() bool { return os.Getpid() == 1 }

func (p *pidOne) signalAll(leader int, sig unix.Signal) {
	_ = unix.Kill(-leader, sig) // the leader may have left its group
	for _, s := range p.others(leader) {
		_ = unix.Kill(s.PID, sig)
	}
}

// killAll ends every process of the sandbox but the init and reports whether
// none is left. In a pid namespace the kernel ends what appears in between.
func (p *pidOne) killAll() bool {
	if p.isolatedPIDs() {
		_ = unix.Kill(-1, unix.SIGKILL) // ESRCH: nobody is left
		return true
	}
	for end := time.Now().Add(cleanUpWithin); time.Now().Before(end); time.Sleep(settleStep) {
		left := descendants(os.Getpid())
		if len(left) == 0 {
			return true
		}
		for _, s := range left {
			_ = unix.Kill(s.PID, unix.SIGKILL)
		}
	}
	return false
}

// others lists the live processes of the sandbox but the init and the leader.
func (p *pidOne) others(leader int) []Survivor {
	all := descendants(os.Getpid())
	out := all[:0]
	for _, s := range all {
		if s.PID != leader && len(out) < maxSurvivors {
			out = append(out, s)
		}
	}
	return out
}

// descendants walks proc. In a pid namespace everything but the init descends
// from it, orphans included; elsewhere the subreaper adopts them.
func descendants(root int) []Survivor {
	all := processes()
	parent := make(map[int]int, len(all))
	for _, s := range all {
		parent[s.PID] = s.PPID
	}
	var out []Survivor
	for _, s := range all {
		for pid, hops := s.PPID, 0; pid > 0 && hops < len(all)+1; pid, hops = parent[pid], hops+1 {
			if pid == root {
				s.Comm, s.Argv = name(s.PID)
				out = append(out, s)
				break
			}
		}
	}
	return out
}

// processes lists live processes with their parents only.
func processes() []Survivor {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var out []Survivor
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if ppid, alive := parentOf(pid); alive {
			out = append(out, Survivor{PID: pid, PPID: ppid})
		}
	}
	return out
}

func parentOf(pid int) (int, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name is in parentheses and may itself hold some.
	_, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	ppid, err := strconv.Atoi(fields[1])
	return ppid, err == nil
}

func name(pid int) (string, []string) {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may just have ended
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if len(line) > maxArgvBytes {
		line = line[:maxArgvBytes]
	}
	var argv []string
	if len(line) > 0 {
		argv = strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	}
	return strings.TrimSpace(string(comm)), argv
}
