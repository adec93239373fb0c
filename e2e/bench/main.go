// Command bench measures what Writ adds to a tool call. The same client calls the same echo server
//
//	direct  over the server's own standard input and output,
//	bridge  through a bridge that only forwards (gRPC on a unix socket, no authentication, no record),
//	read    through Writ, the tool classed read: one durable commit,
//	effect  through Writ, the tool classed external mutation and always allowed: two durable commits,
//
// and beside them makes bare durable commits on the same disk. All of them take turns in one run, so that a machine
// that slows down slows all of them. The limit that Writ is held against is the bridge plus one commit for read and two
// for effect. The output is Markdown for docs/benchmarks.md.
//
// It uses unix sockets and pipes only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// plan is how long is measured.
type plan struct {
	Rounds  int
	Step    time.Duration // of one target with one number of callers, in one round
	Warm    time.Duration // of the same, before the first round, not counted
	Callers []int
	Only    []string // targets; empty: all
}

// budget is when a run is given up: the plan's time and what starting and stopping may take.
func (p plan) budget() time.Duration {
	steps := time.Duration(len(p.Callers) * 5)
	return steps*(time.Duration(p.Rounds)*(p.Step+settle)+p.Warm) + 2*time.Minute
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == bridgeCommand {
		exit(serveBridge(os.Args[2], os.Args[3]))
	}
	p := plan{Rounds: 8, Step: time.Second, Warm: 500 * time.Millisecond, Callers: []int{1, 16}}
	bin := flag.String("bin", "", "the folder with the programs writ and echo-server; empty: ../bin")
	quick := flag.Bool("quick", false, "about 15 s instead of about 90 s, for a first look: its figures are not for the record")
	callers := flag.Int("callers", 0, "only with this number of callers, for a profiler; 0: 1 and 16")
	only := flag.String("only", "", "measure these targets only, separated by commas (direct, bridge, read, effect, commit), for a profiler")
	keep := flag.String("keep", "", "a new folder for Writ's home and the stores, left there for a look at traces and receipts; empty: a temporary one")
	flag.IntVar(&p.Rounds, "rounds", p.Rounds, "how often each target is measured")
	flag.DurationVar(&p.Step, "step", p.Step, "how long each time")
	flag.Parse()
	if *quick {
		p.Rounds, p.Step, p.Warm = 3, 400*time.Millisecond, 200*time.Millisecond
	}
	if *callers > 0 {
		p.Callers = []int{*callers}
	}
	if *only != "" {
		p.Only = strings.Split(*only, ",")
	}
	exit(run(p, *bin, *keep))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(p plan, bin, dir string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, p.budget())
	defer cancel()
	if bin, err = programs(bin); err != nil {
		return err
	}
	if dir != "" {
		err = os.Mkdir(dir, 0o700)
	} else if dir, err = os.MkdirTemp("", "wb"); err == nil { // short: a socket's path has at most 107 bytes
		defer os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	targets, closeAll, err := open(ctx, dir, bin, p.Only)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	before := load()
	results, err := measure(ctx, p, slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return !wanted(p.Only, t.name) }))
	if err != nil {
		return err
	}
	return report(os.Stdout, p, results, dir, before)
}

// programs finds the folder with what `make build` built.
func programs(bin string) (string, error) {
	if bin == "" {
		bin = filepath.Join("..", "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"writ", "echo-server"} {
		if _, err := exec.LookPath(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("%w: run `make build`, then `make bench`", err)
		}
	}
	return bin, nil
}

// target is one of the things that are measured.
type target struct {
	name string
	// call makes one call and fails when the answer is not the one expected.
	call  func(context.Context) error
	close func() error
}

// open starts the targets in an order in which each is alone while it starts.
func open(ctx context.Context, dir, bin string, only []string) (all []target, closeAll func() error, err error) {
	closeAll = func() (err error) {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].close != nil {
				err = errors.Join(err, all[i].close())
			}
		}
		return err
	}
	echo := filepath.Join(bin, "echo-server")
	for _, o := range []struct {
		names []string
		open  func() ([]target, error)
	}{
		{[]string{"direct"}, func() ([]target, error) { return openDirect(ctx, echo) }},
		{[]string{"bridge"}, func() ([]target, error) { return openBridge(ctx, filepath.Join(dir, "bridge.sock"), echo) }},
		{[]string{"read", "effect"}, func() ([]target, error) {
			return openWrit(ctx, filepath.Join(dir, "h"), filepath.Join(bin, "writ"), echo)
		}},
		{[]string{"commit"}, func() ([]target, error) { return openCommit(ctx, filepath.Join(dir, "commit.db")) }},
	} {
		if !wanted(only, o.names...) {
			continue
		}
		opened, err := o.open()
		all = append(all, opened...)
		if err != nil {
			return all, closeAll, fmt.Errorf("%s: %w", o.names[0], err)
		}
	}
	return all, closeAll, nil
}

func wanted(only []string, names ...string) bool {
	for _, o := range only {
		for _, n := range names {
			if o == n {
				return true
			}
		}
	}
	return len(only) == 0
}
