package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	cgroupPrefix = "writ-sbx-"
	// initHeadroom is what the init's own threads may take of the process
	// limit; the payload meets its own limit before the group's.
	initHeadroom = 24
)

// cgroup holds the groups of one sandbox: one folder per controller with
// version 1, one for all with version 2.
type cgroup struct{ dirs []string }

// controllerDir is the folder below which this process may make groups of the
// controller, and its version; "" when there is none.
func controllerDir(controller string) (string, string) {
	mounts, err := readMountinfo("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", ""
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(own)), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, m := range mounts {
			rel, below := within(f[2], m.Root)
			if !below {
				continue
			}
			v1 := m.FSType == "cgroup" && contains(strings.Split(f[1], ","), controller) &&
				contains(strings.Split(filepath.Base(m.Point), ","), controller)
			if v1 {
				return filepath.Join(m.Point, rel), "cgroup1"
			}
			if m.FSType == "cgroup2" && f[0] == "0" && delegated(filepath.Join(m.Point, rel), controller) {
				return filepath.Join(m.Point, rel), "cgroup2"
			}
		}
	}
	return "", ""
}

func delegated(dir, controller string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	return err == nil && contains(strings.Fields(string(text)), controller)
}

// newCgroup makes the groups that keep the limits of spec. The map says what
// is in force; an error means that cgroups can't keep them here.
func newCgroup(id string, spec Spec) (*cgroup, map[string]string, error) {
	g, limits := &cgroup{}, map[string]string{}
	set := func(controller, v1File, v2File, value, name string) error {
		parent, version := controllerDir(controller)
		if parent == "" {
			return fmt.Errorf("no %s controller", controller)
		}
		dir := filepath.Join(parent, cgroupPrefix+strconv.Itoa(os.Getpid())+"-"+id)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		if !contains(g.dirs, dir) {
			g.dirs = append(g.dirs, dir)
		}
		file := v1File
		if version == "cgroup2" {
			file = v2File
		}
		limits[name] = fmt.Sprintf("%s (%s)", value, version)
		return os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
	}
	var err error
	if spec.MaxProcesses > 0 {
		err = set("pids", "pids.max", "pids.max", strconv.Itoa(spec.MaxProcesses+initHeadroom), "processes")
		limits["processes"] = strconv.Itoa(spec.MaxProcesses) + " (rlimit, cgroup)"
	}
	if err == nil && spec.MaxMemory > 0 {
		err = set("memory", "memory.limit_in_bytes", "memory.max", strconv.FormatInt(spec.MaxMemory, 10), "memory")
	}
	if err != nil {
		g.remove()
		return nil, nil, err
	}
	return g, limits, nil
}

func (g *cgroup) add(pid int) error {
	if g == nil {
		return nil
	}
	for _, d := range g.dirs {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return wrap(KindSetup, "cgroup", d, err)
		}
	}
	return nil
}

// remove deletes the groups; the kernel needs a moment to forget the last
// process. What is left is removed by the next Sweep.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	for _, d := range g.dirs {
		for range 50 {
			if err := unix.Rmdir(d); err != unix.EBUSY {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// sweepCgroups removes groups without processes that a killed owner left. Those of a living owner are let be: one that was
// just made has no process yet.
func sweepCgroups() {
	for _, controller := range []string{"pids", "memory"} {
		parent, _ := controllerDir(controller)
		if parent == "" {
			continue
		}
		groups, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")) // the pattern is constant
		for _, d := range groups {
			if !ownerLives(filepath.Base(d)) {
				_ = unix.Rmdir(d) // EBUSY: it is in use
			}
		}
	}
}

// ownerLives tells whether the process that made a group of that name is there.
func ownerLives(name string) bool {
	text, _, _ := strings.Cut(strings.TrimPrefix(name, cgroupPrefix), "-")
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && unix.Kill(pid, 0) != unix.ESRCH
}
