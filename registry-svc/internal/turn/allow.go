package turn

import (
	"fmt"
	"strings"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// patterns are canonical ids, "mcp.<server>.*" and so on, or "*".
type patterns []string

func parse(field string, in []string) (patterns, error) {
	for i, p := range in {
		body := strings.TrimSuffix(p, ".*")
		if p == "*" {
			continue
		}
		if body == "" || strings.Contains(body, "*") || len(p) > 512 || strings.ContainsAny(p, " \t\n\x00") {
			return nil, fault.OfField(fault.FieldInvalid, fmt.Sprintf("%s[%d]", field, i), p, "this is no tool and no pattern of tools",
				`Use a canonical id such as "mcp.fs.read_file", or "mcp.fs.*".`)
		}
	}
	return in, nil
}

func (ps patterns) match(tool string) bool {
	for _, p := range ps {
		prefix, wild := strings.CutSuffix(p, "*")
		if p == tool || wild && strings.HasPrefix(tool, prefix) {
			return true
		}
	}
	return false
}

// reaches tells whether a tool of the provider could match.
func (ps patterns) reaches(provider string) bool {
	for _, p := range ps {
		prefix, wild := strings.CutSuffix(p, "*")
		if strings.HasPrefix(p, provider+".") || wild && strings.HasPrefix(provider+".", prefix) {
			return true
		}
	}
	return false
}

// allowlist is all that narrows a turn's tools: what the request names and what is settled for the agent. Deny wins.
type allowlist struct {
	lists []patterns // a tool has to match each
	deny  patterns
}

func newAllowlist(request []string, agent Agent) (allowlist, error) {
	var a allowlist
	for field, list := range map[string][]string{"tools": request, "agents.tools": agent.Tools} {
		ps, err := parse(field, list)
		if err != nil {
			return a, err
		}
		if len(ps) > 0 {
			a.lists = append(a.lists, ps)
		}
	}
	var err error
	a.deny, err = parse("agents.deny", agent.Deny)
	return a, err
}

func (a allowlist) allows(tool string) bool {
	for _, l := range a.lists {
		if !l.match(tool) {
			return false
		}
	}
	return !a.deny.match(tool)
}

// reaches tells whether any tool of the provider could be allowed: one that can't is not started for nothing (R60).
func (a allowlist) reaches(provider string) bool {
	for _, l := range a.lists {
		if !l.reaches(provider) {
			return false
		}
	}
	for _, p := range a.deny {
		if prefix, wild := strings.CutSuffix(p, "*"); wild && strings.HasPrefix(provider+".", prefix) {
			return false
		}
	}
	return true
}

// CheckAgents finds patterns in the configuration that can't be meant.
func CheckAgents(agents map[string]Agent) error {
	for name, a := range agents {
		if _, err := newAllowlist(nil, a); err != nil {
			return fmt.Errorf("agent %q: %w", name, err)
		}
	}
	return nil
}
