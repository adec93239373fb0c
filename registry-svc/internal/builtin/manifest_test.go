package builtin_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/registry-svc/internal/builtin"
)

// R11, R12, R41: 36 tools in seven groups, in a fixed order, each with exactly one class.
func TestTheManifestIsTheGoldenFile(t *testing.T) {
	tools, err := builtin.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	groups, names := map[string]bool{}, map[string]bool{}
	for i, tool := range tools {
		groups[tool.Group], names[tool.Name] = true, true
		if class.Word(tool.Class) == "" || tool.Class == commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION {
			t.Errorf("%s has the class %v", tool.Name, tool.Class)
		}
		served := "no executor"
		if tool.Served() {
			served = "served"
		}
		fmt.Fprintf(&got, "%02d %s %s %s, %s\n", i+1, tool.Group, tool.Name, class.Word(tool.Class), served)
	}
	if len(names) != 36 || len(groups) != 7 {
		t.Errorf("%d names in %d groups, R12 has 36 in 7", len(names), len(groups))
	}
	want, err := os.ReadFile("testdata/manifest.golden")
	if err != nil || got.String() != string(want) {
		t.Errorf("the manifest is not the golden file (%v); it is\n%s", err, got.String())
	}
}

// What a model sees of run_command is what its parser and executor were built with, byte for byte (R34).
func TestRunCommandIsServedVerbatim(t *testing.T) {
	tools, err := builtin.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if tool.Served() != (tool.Name == command.ToolName) {
			t.Errorf("%s: served %v", tool.Name, tool.Served())
		}
		if tool.Name == command.ToolName && !bytes.Equal(tool.Definition, []byte(command.Definition)) {
			t.Error("the definition is not the executor's")
		}
	}
}
