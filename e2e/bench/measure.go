package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// settle is the pause before each step: what the step before left behind (spans that are stored later, pages that are
// written back) must not be charged to the next one.
const settle = 100 * time.Millisecond

// key is a cell of the table.
type key struct {
	target  string
	callers int
}

// sample is one step: the times of its calls and how long it took.
type sample struct {
	calls []time.Duration
	took  time.Duration
}

// results are the steps of each cell, one for each round.
type results map[key][]sample

// measure runs the plan. In each round every target gets a step; the first one moves on by one from round to round, so
// that none always runs behind the same other.
func measure(ctx context.Context, p plan, targets []target) (results, error) {
	for _, t := range targets {
		for _, n := range p.Callers {
			if _, err := step(ctx, t, n, p.Warm); err != nil {
				return nil, err
			}
		}
	}
	out := results{}
	for round := range p.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, p.Rounds)
		for _, n := range p.Callers {
			for i := range targets {
				t := targets[(i+round)%len(targets)]
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(settle):
				}
				s, err := step(ctx, t, n, p.Step)
				if err != nil {
					return nil, err
				}
				k := key{t.name, n}
				out[k] = append(out[k], s)
			}
		}
	}
	return out, nil
}

// step lets n callers call, each one call after the other, for so long. One failed call fails the run: a figure with
// errors in it says nothing.
func step(ctx context.Context, t target, n int, long time.Duration) (sample, error) {
	times := make([][]time.Duration, n)
	errs := make([]error, n)
	var callers sync.WaitGroup
	begin := time.Now()
	for i := range n {
		callers.Go(func() {
			for now := time.Now(); now.Sub(begin) < long; {
				if errs[i] = t.call(ctx); errs[i] != nil {
					return
				}
				end := time.Now()
				times[i] = append(times[i], end.Sub(now))
				now = end
			}
		})
	}
	callers.Wait()
	took := time.Since(begin)
	if err := errors.Join(errs...); err != nil {
		return sample{}, fmt.Errorf("%s with %d callers: %w", t.name, n, err)
	}
	return sample{calls: slices.Concat(times...), took: took}, nil
}

// quantile of sorted times, by the nearest rank.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// summary is what a cell of the table says.
type summary struct {
	measured        bool
	calls           int
	p50, p99        time.Duration
	perSecond       float64
	rounds          []time.Duration // p50 of each round
	lowest, highest time.Duration   // of rounds
}

func (r results) of(target string, callers int) (s summary) {
	var all []time.Duration
	var took time.Duration
	for _, step := range r[key{target, callers}] {
		sorted := slices.Sorted(slices.Values(step.calls))
		s.rounds = append(s.rounds, quantile(sorted, 0.5))
		all = append(all, sorted...)
		took += step.took
	}
	if len(all) == 0 {
		return s
	}
	slices.Sort(all)
	s.measured = true
	s.calls, s.p50, s.p99 = len(all), quantile(all, 0.5), quantile(all, 0.99)
	s.perSecond = float64(len(all)) / took.Seconds()
	s.lowest, s.highest = slices.Min(s.rounds), slices.Max(s.rounds)
	return s
}
