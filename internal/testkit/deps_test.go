package testkit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every module that a go.mod of ours asks for stands in docs/dependencies.md, with its reason.
func TestEveryDependencyHasItsReason(t *testing.T) {
	doc, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	known := strings.ReplaceAll(string(doc), "`…/", "`go.opentelemetry.io/")
	require := regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+|\S+\.\S+) v\S+$`)
	var files []string
	for _, pattern := range []string{"../../*/go.mod", "../../*/*/go.mod"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	seen := 0
	for _, file := range files {
		if strings.HasPrefix(file, "../../tools/") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range require.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "github.com/writ-dev/writ/") {
				continue
			}
			seen++
			if !strings.Contains(known, "`"+m[1]+"`") {
				t.Errorf("%s asks for %s; docs/dependencies.md does not say why", file, m[1])
			}
		}
	}
	if seen < 20 {
		t.Errorf("found %d requirements only", seen)
	}
}
