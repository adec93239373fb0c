// Package builtin is the manifest of Writ's own tools: 36 in seven groups, each classified ahead (R1, R12, R41). No RPC
// adds one. A turn gets those that have an executor in this release; the others keep their names from being taken.
package builtin

import (
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/fingerprint"
)

// Provider is the provider of every builtin tool.
const Provider = command.Provider

// Tool is a builtin tool.
type Tool struct {
	Group string
	Name  string
	Class commonv1.SecurityClass
	// Definition is what a model sees, byte for byte. It is empty for a tool that has no executor yet.
	Definition []byte
	Wire       string
	Semantic   string
}

// Served tells whether the tool can be in a turn.
func (t Tool) Served() bool { return len(t.Definition) > 0 }

const (
	read     = commonv1.SecurityClass_SECURITY_CLASS_READ
	compute  = commonv1.SecurityClass_SECURITY_CLASS_COMPUTE
	search   = commonv1.SecurityClass_SECURITY_CLASS_NETWORK_SEARCH
	fetch    = commonv1.SecurityClass_SECURITY_CLASS_NETWORK_READ
	write    = commonv1.SecurityClass_SECURITY_CLASS_WORKSPACE_WRITE
	process  = commonv1.SecurityClass_SECURITY_CLASS_PROCESS
	dispatch = commonv1.SecurityClass_SECURITY_CLASS_DISPATCH
	instruct = commonv1.SecurityClass_SECURITY_CLASS_PERSISTENT_INSTRUCTION_WRITE
)

type row struct {
	name  string
	class commonv1.SecurityClass
}

// groups is the manifest in its order.
func groups() []struct {
	name string
	rows []row
} {
	return []struct {
		name string
		rows []row
	}{
		{"workspace", []row{
			{"read_file", read}, {"list_dir", read}, {"glob", read}, {"grep", read},
			{"write_file", write}, {"edit_file", write}, {"apply_patch", write}, {"delete_path", write},
		}},
		{"environment", []row{
			{command.ToolName, process}, {"get_env", read}, {"which", read}, {"git_status", read}, {"git_diff", read},
		}},
		{"external", []row{{"web_search", search}, {"fetch_url", fetch}}},
		// What is saved to memory is read as guidance by later turns.
		{"memory", []row{
			{"memory_save", instruct}, {"memory_search", read}, {"memory_get", read}, {"memory_list", read}, {"memory_delete", instruct},
		}},
		{"persistence", []row{
			{"save_artifact", write}, {"load_artifact", read}, {"list_artifacts", read},
			{"save_checkpoint", write}, {"restore_checkpoint", write},
		}},
		// The signals say something to whoever waits for this turn; the last two make others act.
		{"workflow", []row{
			{"signal_done", compute}, {"signal_blocked", compute}, {"signal_progress", compute}, {"request_input", compute},
			{"emit_event", dispatch}, {"handoff", dispatch},
		}},
		{"registry", []row{
			{"load_plugin_tools", read}, {"list_plugins", read}, {"describe_tool", read}, {"call_status", read}, {"cancel_call", compute},
		}},
	}
}

// Manifest returns the tools in their fixed order.
func Manifest() ([]Tool, error) {
	definitions := map[string]string{command.ToolName: command.Definition}
	var out []Tool
	for _, g := range groups() {
		for _, r := range g.rows {
			t := Tool{Group: g.name, Name: r.name, Class: r.class}
			if d, ok := definitions[r.name]; ok {
				semantic, err := fingerprint.Semantic([]byte(d))
				if err != nil {
					return nil, err
				}
				t.Definition, t.Wire, t.Semantic = []byte(d), fingerprint.Wire([]byte(d)), semantic
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// Digest is the provider digest of the builtins that exec runs, as exec computes it too: another release's contract is
// another provider.
func Digest() string { return command.ProviderDigest() }
