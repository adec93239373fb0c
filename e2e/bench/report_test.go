package main

import (
	"strings"
	"testing"
	"time"
)

func samples(ms ...float64) (out []sample) {
	for _, m := range ms {
		d := time.Duration(m * float64(time.Millisecond))
		out = append(out, sample{calls: []time.Duration{d, d, d}, took: 3 * d})
	}
	return out
}

// The limit is the bridge plus one commit for a read and two for an effect, and the ratio is held against the aim.
func TestTheLimitIsTheBridgeAndTheCommits(t *testing.T) {
	r := results{
		key{"bridge", 1}: samples(2, 2), key{"commit", 1}: samples(1, 1), key{"direct", 1}: samples(1, 1),
		key{"read", 1}: samples(3, 6), key{"effect", 1}: samples(10, 10),
	}
	var out strings.Builder
	if err := report(&out, plan{Rounds: 2, Step: time.Second, Callers: []int{1, 16}}, r, t.TempDir(), "0.00"); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| 1 | read | 3.000 | 6.000 | 2.00 | 1.00–2.00 | missed |",
		"| 1 | effect | 4.000 | 10.000 | 2.50 | 2.50–2.50 | missed |",
		"| 1 | bare bridge | 2.000 | 2.000 | 500 | 2.000–2.000 | 6 |",
	} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("the report has no line %s:\n%s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "| 16 |") {
		t.Errorf("the report has a figure that was not measured:\n%s", out.String())
	}
}
