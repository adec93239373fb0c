package telemetry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Every name in attrs.go is explained in docs/telemetry.md.
func TestEveryNameIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "attrs.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		names++
		if !strings.Contains(string(doc), "`"+strings.TrimSpace(name)) {
			t.Errorf("docs/telemetry.md does not explain %q", name)
		}
		return true
	})
	if names < 50 {
		t.Errorf("found %d names only", names)
	}
}
