// Package docs holds the documentation to the code.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fenced    = regexp.MustCompile("(?s)```.*?```")
	reason    = regexp.MustCompile(`(?m)^  ERROR_REASON_([A-Z_]+) = [1-9]`)
	limitName = regexp.MustCompile(`\b[a-z][a-z0-9]*(_[a-z0-9]+)+\b`)
)

// pages are README.md, CONTRIBUTING.md and all of docs, by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	found, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(found, "../../README.md", "../../CONTRIBUTING.md") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(b)
	}
	return out
}

// anchor is the name that a heading has as a link's target.
func anchor(heading string) string {
	heading = strings.ToLower(strings.NewReplacer("`", "", "*", "").Replace(heading))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, heading)
}

// A reader who follows a link of the documentation arrives.
func TestLinksOfTheDocumentationResolve(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if fragment == "" {
				continue
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(all[path], ""), -1) {
				anchors = append(anchors, anchor(h[1]))
			}
			if !slices.Contains(anchors, fragment) {
				t.Errorf("%s: the link %s has no heading in %s", page, m[1], path)
			}
		}
	}
}

// limitsOf reads the names of settings in the comments of a service's type Limits.
func limitsOf(t *testing.T, service string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", service, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "Limits" {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				if !f.Names[0].IsExported() {
					continue
				}
				name := limitName.FindString(f.Comment.Text())
				if name == "" {
					t.Errorf("%s: Limits.%s has no name in its comment", path, f.Names[0].Name)
				}
				names = append(names, name)
			}
			return false
		})
	}
	return names
}

// Design, rule 8: every limit is a named setting with a default, in docs/limits.md.
func TestEveryLimitIsDocumented(t *testing.T) {
	text := pages(t)["../../docs/limits.md"]
	for _, service := range []string{"registry-svc", "permission-svc", "mcp-host-svc", "exec-svc", "evidence-svc", "gateway-svc"} {
		names := limitsOf(t, service)
		if len(names) == 0 {
			t.Errorf("%s has no limits", service)
		}
		for _, name := range names {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s: the limit %s is not in docs/limits.md", service, name)
			}
		}
	}
}

// The example in docs/embedding.md is the one that is tested.
func TestTheExampleInTheDocumentationIsTheTestedOne(t *testing.T) {
	source, err := os.ReadFile("embedding_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "func Example_embedding() {\n")
	body, _, ok := strings.Cut(body, "\t// Output:")
	if !ok {
		t.Fatal("embedding_test.go has no example with an output")
	}
	body = strings.ReplaceAll(strings.TrimPrefix(body, "\t"), "\n\t", "\n")
	if !strings.Contains(pages(t)["../../docs/embedding.md"], "```go\n"+body+"```\n") {
		t.Errorf("docs/embedding.md does not show the tested example:\n%s", body)
	}
}

// Every reason of a service's errors stands on its page.
func TestEveryReasonIsDocumented(t *testing.T) {
	all := pages(t)
	for service, folder := range map[string]string{
		"registry-svc": "registry", "permission-svc": "permission", "mcp-host-svc": "mcphost", "exec-svc": "exec",
		"evidence-svc": "evidence", "gateway-svc": "gateway",
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "proto", "writ", folder, "v1", "errors.proto"))
		if err != nil {
			t.Fatal(err)
		}
		found := reason.FindAllStringSubmatch(string(b), -1)
		if len(found) == 0 {
			t.Errorf("%s has no reasons", service)
		}
		for _, m := range found {
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(all["../../docs/"+service+".md"]) {
				t.Errorf("docs/%s.md does not name the reason %s", service, m[1])
			}
		}
	}
}
