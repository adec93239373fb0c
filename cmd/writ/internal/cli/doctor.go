package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
)

// finding is one line of `writ doctor`.
type finding struct {
	What  string `json:"what"`
	State string `json:"state"` // ok, note, problem
	Text  string `json:"text,omitempty"`
	Next  string `json:"next,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "what this machine can enforce, and what is wrong", Args: cobra.NoArgs,
		Long: "Tries each mechanism for real in a process that is thrown away, and looks at the home folder. Exits with 1 when\nsomething keeps Writ from working.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := client.Find(a.homeFlag, a.addrFlag)
			if err != nil {
				return err
			}
			findings := append(machine(sandbox.Probe(cmd.Context())), programs()...)
			findings = append(findings, homeFindings(f.Home)...)
			if info, err := a.info(cmd.Context()); err == nil {
				findings = append(findings, finding{What: "server", State: "ok", Text: fmt.Sprintf("answers, version %s", info.GetVersion())})
			} else {
				findings = append(findings, finding{What: "server", State: "note", Text: "does not answer", Next: "writ up -d"})
			}
			findings = append(findings, users()...)
			return a.report(findings)
		},
	}
}

func (a *app) report(findings []finding) error {
	code := ExitOK
	for _, f := range findings {
		if f.State == "problem" {
			code = ExitFailed
		}
		if a.json {
			if err := json.NewEncoder(a.Out).Encode(f); err != nil {
				return err
			}
			continue
		}
		mark := map[string]string{"ok": a.Good("✓"), "note": a.Wait("!"), "problem": a.Bad("✗")}[f.State]
		a.Line("%s %-22s %s", mark, f.What, f.Text)
		if f.Next != "" {
			a.Line("  %-22s %s", "", f.Next)
		}
	}
	if code != ExitOK {
		return exit(code)
	}
	return nil
}

// machine says what sandboxing the machine gives.
func machine(c sandbox.Capabilities) (out []finding) {
	for _, m := range []struct {
		what  string
		check sandbox.Check
	}{
		{"user namespaces", c.UserNS}, {"mount namespaces", c.MountNS}, {"pid namespaces", c.PIDNS}, {"network namespaces", c.NetNS},
		{"own loopback", c.Loopback}, {"fresh /proc", c.FreshProc}, {"seccomp", c.Seccomp},
	} {
		f := finding{What: m.what, State: "ok"}
		if !m.check.OK {
			f.State, f.Text = "note", fmt.Sprintf("%s: %s", m.check.Step, m.check.Errno)
		}
		out = append(out, f)
	}
	landlock := finding{What: "landlock", State: "ok", Text: fmt.Sprintf("abi %d", c.LandlockABI)}
	if c.LandlockABI == 0 {
		landlock = finding{What: "landlock", State: "note", Text: "not in this kernel"}
	}
	out = append(out, landlock, finding{What: "process and memory caps", State: "ok", Text: fmt.Sprintf("pids by %s, memory by %s", c.CgroupPIDs, c.CgroupMemory)})
	for _, p := range []struct {
		profile sandbox.Profile
		what    string
	}{{sandbox.ProfileCommand, "commands run"}, {sandbox.ProfileServer, "MCP servers run"}} {
		level, lacks := c.Best(p.profile)
		f := finding{What: p.what, State: "ok", Text: string(level)}
		if lacks != nil {
			f.State, f.Text = "note", fmt.Sprintf("%s; what is missing for more: %+v", level, *lacks)
		}
		if level == sandbox.LevelHost || level == "" {
			f.State, f.Next = "problem", "calls that ask for more isolation are refused; only an approved host run is possible"
		}
		out = append(out, f)
	}
	return out
}

// programs looks for what connectors usually start with.
func programs() (out []finding) {
	for _, p := range []string{"node", "npx"} {
		path, err := exec.LookPath(p)
		if err != nil {
			out = append(out, finding{What: p, State: "note", Text: "not on the PATH", Next: "connectors that start with it will not work"})
			continue
		}
		out = append(out, finding{What: p, State: "ok", Text: path})
	}
	return out
}

func homeFindings(l home.Layout) []finding {
	st, err := os.Stat(l.Root)
	switch {
	case err != nil:
		return []finding{{What: "home", State: "note", Text: l.Root + " is not there yet", Next: "writ up makes it"}}
	case st.Mode().Perm()&0o077 != 0:
		return []finding{{What: "home", State: "problem", Text: fmt.Sprintf("others can enter %s (%04o)", l.Root, st.Mode().Perm()), Next: "chmod 700 " + l.Root}}
	}
	out := []finding{{What: "home", State: "ok", Text: l.Root}}
	for _, role := range []client.Role{client.Caller, client.Approver} {
		if _, err := home.ReadPrivate(l.TokenFile(string(role))); err != nil && !os.IsNotExist(err) {
			out = append(out, finding{What: string(role) + "'s credential", State: "problem", Text: err.Error()})
		}
	}
	return out
}

// users states the limit of the embedded default.
func users() []finding {
	name := "this user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return []finding{{
		What: "separation", State: "note", Text: "the server and your agents share the user " + name,
		Next: "an approved host command, or a program outside Writ, could read its keys: run the server under a user of its own",
	}}
}
