package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// aim is how far above the limit Writ may be at p50.
const aim = 1.5

// report prints the run as Markdown. before is the load of the machine when the run began.
func report(out io.Writer, p plan, r results, dir, before string) error {
	w := &printer{out: out}
	w.line("Measured on %s, commit %s, with `%s`.", time.Now().UTC().Format("2006-01-02 15:04 UTC"), commit(), strings.Join(append([]string{"go run ./bench"}, os.Args[1:]...), " "))
	w.line("Machine: %s. Load average before: %s, after: %s.", machine(dir), before, load())
	w.line("%d rounds, %s for each target and number of callers in each round, the targets taking turns. A commit writes one row of %d bytes.", p.Rounds, p.Step, commitBytes)
	w.line("")
	w.line("| callers | what | p50 | p99 | calls/s | p50 of the rounds | calls |")
	w.line("|--:|:--|--:|--:|--:|:-:|--:|")
	for _, n := range p.Callers {
		for _, row := range []struct{ target, words string }{
			{"direct", "direct, stdio"}, {"bridge", "bare bridge"}, {"commit", "one durable commit"}, {"read", "Writ, read"}, {"effect", "Writ, effect"},
		} {
			if s := r.of(row.target, n); s.measured {
				w.line("| %d | %s | %s | %s | %.0f | %s–%s | %d |", n, row.words, ms(s.p50), ms(s.p99), s.perSecond, ms(s.lowest), ms(s.highest), s.calls)
			}
		}
	}
	w.line("")
	w.line("Times are milliseconds. The limit is the bridge plus one durable commit (read) or two (effect), all at p50.")
	w.line("")
	w.line("| callers | what | limit | Writ | ratio | of the rounds | aim ≤ %.1f |", aim)
	w.line("|--:|:--|--:|--:|--:|:-:|:-:|")
	for _, n := range p.Callers {
		for i, name := range []string{"read", "effect"} {
			w.ratio(r, name, n, i+1)
		}
	}
	return w.err
}

type printer struct {
	out io.Writer
	err error
}

func (w *printer) line(format string, a ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", a...)
	}
}

// ratio prints Writ's p50 over the limit's: of all calls, and the span of the rounds, each against its own limit.
func (w *printer) ratio(r results, target string, callers, commits int) {
	bridge, disk, writ := r.of("bridge", callers), r.of("commit", callers), r.of(target, callers)
	if !bridge.measured || !disk.measured || !writ.measured {
		return
	}
	limit := bridge.p50 + time.Duration(commits)*disk.p50
	var each []float64
	for i := range writ.rounds {
		each = append(each, writ.rounds[i].Seconds()/(bridge.rounds[i].Seconds()+float64(commits)*disk.rounds[i].Seconds()))
	}
	ratio, met := writ.p50.Seconds()/limit.Seconds(), "missed"
	if ratio <= aim {
		met = "met"
	}
	w.line("| %d | %s | %s | %s | %.2f | %.2f–%.2f | %s |", callers, target, ms(limit), ms(writ.p50), ratio, slices.Min(each), slices.Max(each), met)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond)) }

// machine says on what the figures were taken.
func machine(dir string) string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	return fmt.Sprintf("%d cores (%s), kernel %s, %s/%s, %s, %s, %s", runtime.NumCPU(), processor(), kernel, runtime.GOOS, runtime.GOARCH, memory(), filesystem(dir), runtime.Version())
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(name), ":"))
		}
	}
	return runtime.GOARCH
}

func memory() string {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return "memory unknown"
	}
	return fmt.Sprintf("%d GiB", (uint64(info.Totalram)*uint64(info.Unit)+(1<<29))>>30)
}

// load is the machine's load average over one minute: other work on it makes every figure worse.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// filesystem names the file system that dir lies on, from the mount table.
func filesystem(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return "file system unknown"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "file system unknown"
	}
	b, _ := os.ReadFile("/proc/self/mountinfo")
	want := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); len(f) > 2 && f[2] == want {
			if g := strings.Fields(after); len(g) > 1 {
				return g[0] + " on " + filepath.Base(g[1])
			}
		}
	}
	return "file system unknown"
}

// commit is what is checked out, and whether the tree differs from it.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	if changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}
