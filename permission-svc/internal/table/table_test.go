package table_test

import (
	"fmt"
	"strings"
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/permission-svc/internal/table"
)

// ruling12 is the ruling as it is written down for people, copied from requirements.md and read by this test alone.
const ruling12 = `
| mode | read | compute | network search | network read | workspace write | process | dispatch | persistent instruction write | external mutation |
| Manual | A | A | ? | ? | ? | ? | ? | ? | ? |
| Accept edits | A | A | ? | ? | A | ? | ? | ? | ? |
| Plan | A | A | A | A | × | × | × | × | × |
| Auto | A | A | A | A | A | A, ? if destructive | A | ? | ? |
| Bypass | A | A | A | A | A | A | A | A | A |`

// cells reads the literal: mode, class, destructive -> word.
func cells(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var classes []string
	for _, line := range strings.Split(strings.TrimSpace(ruling12), "\n") {
		cols := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cols {
			cols[i] = strings.ReplaceAll(strings.ToUpper(strings.TrimSpace(cols[i])), " ", "_")
		}
		if classes == nil {
			classes = cols[1:]
			continue
		}
		for i, word := range cols[1:] {
			usual, destructive := word, word
			if w, ok := strings.CutSuffix(word, ",_?_IF_DESTRUCTIVE"); ok {
				usual, destructive = w, "?"
			}
			out[fmt.Sprint("MODE_"+cols[0], " SECURITY_CLASS_"+classes[i], " ", false)] = usual
			out[fmt.Sprint("MODE_"+cols[0], " SECURITY_CLASS_"+classes[i], " ", true)] = destructive
		}
	}
	return out
}

// second is ruling 12 once more, as sentences and over words instead of numbers.
func second(cell string, in table.Input) string {
	word := cell
	plan := in.Modes[0] == commonv1.Mode_MODE_PLAN
	if word == "" || plan && in.Server {
		word = "×"
	}
	always := in.Disposition == commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW ||
		in.Granted && in.Disposition == commonv1.Disposition_DISPOSITION_AUTOMATIC
	asks := in.Disposition == commonv1.Disposition_DISPOSITION_ASK_FIRST || in.AlwaysGate || in.AlwaysAsk
	refused := in.ModeOff
	switch in.Disposition {
	case commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, commonv1.Disposition_DISPOSITION_AUTOMATIC, commonv1.Disposition_DISPOSITION_ASK_FIRST:
	default:
		refused = true
	}
	switch {
	case refused || word == "×":
		return "×"
	case asks:
		return "?"
	case word == "?" && always:
		return "A"
	}
	return word
}

// R38, R40-R43, R51, ruling 12: every mode, known or not, times every class, disposition and circumstance.
func TestEveryCellIsAsTheRulingSays(t *testing.T) {
	literal := cells(t)
	if len(literal) != 5*9*2 {
		t.Fatalf("the literal has %d cells", len(literal))
	}
	n := 0
	for mode := commonv1.Mode(-1); mode <= 6; mode++ {
		for class := commonv1.SecurityClass(-1); class <= 10; class++ {
			for disposition := commonv1.Disposition(-1); disposition <= 5; disposition++ {
				for bits := range 64 {
					flag := func(i int) bool { return bits>>i&1 == 1 }
					in := table.Input{
						Modes: []commonv1.Mode{mode}, Class: class, Disposition: disposition, Granted: flag(0), Server: flag(1),
						Destructive: flag(2), AlwaysGate: flag(3), AlwaysAsk: flag(4), ModeOff: flag(5),
					}
					want := second(literal[fmt.Sprint(mode, " ", class, " ", in.Destructive)], in)
					if got := table.Decide(in).String(); got != want {
						t.Fatalf("%+v: %s, the ruling says %s", in, got, want)
					}
					n++
				}
			}
		}
	}
	if n != 8*12*7*64 {
		t.Fatalf("%d cases", n)
	}
}

// A bound can only tighten: with two modes the stronger word counts.
func TestABoundOnlyTightens(t *testing.T) {
	for a := commonv1.Mode(0); a <= 5; a++ {
		for b := commonv1.Mode(0); b <= 5; b++ {
			for class := commonv1.SecurityClass(0); class <= 9; class++ {
				in := table.Input{Class: class, Disposition: commonv1.Disposition_DISPOSITION_AUTOMATIC, Server: true}
				in.Modes = []commonv1.Mode{a}
				one := table.Decide(in)
				in.Modes = []commonv1.Mode{b}
				other := table.Decide(in)
				in.Modes = []commonv1.Mode{a, b}
				if got := table.Decide(in); got != max(one, other) {
					t.Fatalf("%v and %v, %v: %v of %v and %v", a, b, class, got, one, other)
				}
			}
		}
	}
}

// Nothing at all is refused.
func TestNothingIsRefused(t *testing.T) {
	if got := table.Decide(table.Input{}); got != table.Refuse {
		t.Fatal(got)
	}
	if got := table.Strongest(); got != table.Refuse {
		t.Fatal(got)
	}
}
