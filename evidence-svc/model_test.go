package evidence_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// model is what a call can be, in words: nothing, reserved (a read), claimed, ended.
type model struct {
	call
	effect bool
	state  string
	token  string
	id     string // the receipt
}

// TestAnyOrderOfClaimsAndSealsKeepsTheRules holds the service against a model of one sentence: a call with an effect is
// claimed once, a call ends once, and a restart changes neither. R100, R109.
func TestAnyOrderOfClaimsAndSealsKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		s := evidencetest.New(t, evidence.Config{Dir: dir}, nil)
		defer func() { s.Stop() }()
		var calls []*model
		for i := range 4 {
			effect := i%2 == 0
			m := &model{effect: effect, state: "nothing", call: newCall(t, func(c *writtoken.Claims) {
				if !effect {
					c.Class = "network_read"
				}
			})}
			calls = append(calls, m)
		}
		ended := int64(0)
		attempts := 0 // in every outcome, since the same bytes may be sealed twice
		pick := func(rt *rapid.T) *model { return calls[rapid.IntRange(0, len(calls)-1).Draw(rt, "call")] }
		end := func(rt *rapid.T, m *model, r *evidencev1.Receipt, err error, allowed bool, otherwise ...string) {
			if !allowed {
				for _, reason := range otherwise {
					if errs.ReasonOf(err) == reason {
						return
					}
				}
				rt.Fatalf("%s in state %s: got %v, want %v", m.name, m.state, err, otherwise)
			}
			if err != nil {
				rt.Fatalf("%s in state %s: %v", m.name, m.state, err)
			}
			if ended++; r.GetSequence() != ended {
				rt.Fatalf("sequence %d, want %d", r.GetSequence(), ended)
			}
			m.state, m.id = "ended", r.GetId()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(rt *rapid.T) {
				m := pick(rt)
				answer, err := s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: m.writ})
				if m.state == "claimed" || m.state == "ended" {
					if errs.ReasonOf(err) != "CLAIM_TAKEN" || errs.Metadata(err)["receipt"] != m.id {
						rt.Fatalf("%s in state %s: %v", m.name, m.state, err)
					}
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				m.token, m.state = answer.GetClaim().GetClaimToken(), "reserved"
				if m.effect {
					m.state = "claimed"
				}
			},
			"seal": func(rt *rapid.T) {
				m := pick(rt)
				attempts++
				f, o := m.completed(fmt.Sprintf(`{"attempt":%d}`, attempts))
				r, err := s.Sealer("exec").Seal(t.Context(), f, o, m.token)
				end(rt, m, r, err, m.state == "claimed" || m.state == "reserved" || !m.effect && m.token != "" && m.state != "ended",
					"CLAIM_TAKEN", "CLAIM_TOKEN_INVALID")
			},
			"seal with another's token": func(rt *rapid.T) {
				m, other := pick(rt), pick(rt)
				if m == other || other.token == "" {
					return
				}
				f, o := m.completed(`{"other":1}`)
				r, err := s.Sealer("exec").Seal(t.Context(), f, o, other.token)
				end(rt, m, r, err, false, "CLAIM_TAKEN", "CLAIM_TOKEN_INVALID")
			},
			"deny": func(rt *rapid.T) {
				m := pick(rt)
				attempts++
				f, o := m.ended(commonv1.OutcomeState_OUTCOME_STATE_DENIED, fmt.Sprint("REASON_", attempts))
				r, err := s.Sealer("permission").Seal(t.Context(), f, o, "")
				end(rt, m, r, err, m.state == "nothing", "CLAIM_TAKEN")
			},
			"read back": func(rt *rapid.T) {
				m := pick(rt)
				got, err := s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: m.name})
				if (m.state == "ended") != (err == nil) || got.GetReceipt().GetId() != m.id {
					rt.Fatalf("%s in state %s: %v %v", m.name, m.state, got, err)
				}
			},
			"restart": func(rt *rapid.T) {
				s.Stop()
				s = evidencetest.New(t, evidence.Config{Dir: dir}, nil)
				open := 0
				for _, m := range calls {
					if m.state == "reserved" {
						m.state = "nothing" // the reservation is gone; the token still proves it
					}
					if m.state == "claimed" {
						open++
					}
				}
				list, err := s.Claims("exec").ListOpenClaims(t.Context(), &evidencev1.ListOpenClaimsRequest{})
				if err != nil || len(list.GetClaims()) != open {
					rt.Fatalf("%d open claims, want %d: %v", len(list.GetClaims()), open, err)
				}
			},
		})
	})
}
