package auth_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
)

func newHome(t *testing.T) *home.Home {
	t.Helper()
	h, err := home.Open(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Acting and deciding are different credentials (design, Trust 2); the caller's can never reach Bypass or a card.
func TestEmbeddedTokensAreTwo(t *testing.T) {
	h := newHome(t)
	tokens, err := auth.EmbeddedTokens(h)
	if err != nil {
		t.Fatal(err)
	}
	get := func(name string) auth.Credential {
		token, err := auth.ReadToken(h.TokenFile(name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := tokens.Authenticate(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, a := get(auth.CallerToken), get(auth.ApproverToken)
	if c.Principal.GetKind() != agent || len(c.Roles) != 1 || !c.Has(caller) || c.MaxMode != commonv1.Mode_MODE_AUTO || c.Namespace != "default" {
		t.Errorf("caller: %+v", c)
	}
	if a.Principal.GetKind() != human || !a.Has(caller) || !a.Has(approver) || !a.Has(operator) || a.Has(service) || a.Principal.GetId() == "" {
		t.Errorf("approver: %+v", a)
	}
	table, err := os.ReadFile(h.CredentialsFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{auth.CallerToken, auth.ApproverToken} {
		token, _ := auth.ReadToken(h.TokenFile(name))
		if len(token) < 48 || strings.Contains(string(table), token) {
			t.Errorf("%s: a token of %d characters, in the table: %v", name, len(token), strings.Contains(string(table), token))
		}
		if st, _ := os.Stat(h.TokenFile(name)); st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, st.Mode())
		}
	}
	if _, err := tokens.Authenticate(t.Context(), "writ_guess"); !errors.Is(err, auth.ErrUnknownToken) {
		t.Errorf("%v", err)
	}
}

func TestTokensAreMadeOnceAlsoByMany(t *testing.T) {
	h := newHome(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			tokens, err := auth.EmbeddedTokens(h)
			if err != nil {
				t.Error(err)
				return
			}
			token, err := auth.ReadToken(h.TokenFile(auth.ApproverToken))
			if err != nil {
				t.Error(err)
			}
			if _, err := tokens.Authenticate(t.Context(), token); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
}

func TestAnExposedTokenFileIsRefused(t *testing.T) {
	h := newHome(t)
	if _, err := auth.EmbeddedTokens(h); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{h.CredentialsFile(), h.TokenFile(auth.ApproverToken)} {
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	var exposed *home.ExposedError
	if _, err := auth.EmbeddedTokens(h); !errors.As(err, &exposed) {
		t.Errorf("table: %v", err)
	}
	if _, err := auth.ReadToken(h.TokenFile(auth.ApproverToken)); !errors.As(err, &exposed) {
		t.Errorf("token: %v", err)
	}
}

// A table that is not understood whole is not used at all, and the error names the row.
func TestATableWithAMistakeIsRefused(t *testing.T) {
	const good = `"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","principal":"p","namespace":"default","max_mode":"auto"`
	const other = `"sha256":"a3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","principal":"p","namespace":"default","max_mode":"auto"`
	path := filepath.Join(t.TempDir(), "credentials.json")
	load := func(body string) error {
		if err := home.ReplacePrivate(path, []byte(body)); err != nil {
			t.Fatal(err)
		}
		_, err := auth.LoadTokens(path)
		return err
	}
	row := func(s string) string { return `{"version":1,"credentials":[` + s + `]}` }
	if err := load(row(`{"id":"a","kind":"agent","roles":["caller"],` + good + `}`)); err != nil {
		t.Fatalf("a good table: %v", err)
	}
	for name, body := range map[string]string{
		"unknown field":             row(`{"id":"a","kind":"agent","roles":["caller"],"admin":true,` + good + `}`),
		"unknown role":              row(`{"id":"a","kind":"agent","roles":["root"],` + good + `}`),
		"no role by that name":      row(`{"id":"a","kind":"agent","roles":["unspecified"],` + good + `}`),
		"unknown kind":              row(`{"id":"a","kind":"robot","roles":["caller"],` + good + `}`),
		"no roles":                  row(`{"id":"a","kind":"agent","roles":[],` + good + `}`),
		"an agent that decides":     row(`{"id":"a","kind":"agent","roles":["approver"],` + good + `}`),
		"a person as service":       row(`{"id":"a","kind":"human","roles":["service"],` + good + `}`),
		"the same id twice":         row(`{"id":"a","kind":"agent","roles":["caller"],` + good + `},{"id":"a","kind":"agent","roles":["caller"],` + other + `}`),
		"the same token twice":      row(`{"id":"a","kind":"agent","roles":["caller"],` + good + `},{"id":"b","kind":"agent","roles":["caller"],` + good + `}`),
		"short hash":                row(`{"id":"a","kind":"agent","roles":["caller"],"sha256":"00","principal":"p","namespace":"default","max_mode":"auto"}`),
		"relative root":             row(`{"id":"a","kind":"agent","roles":["caller"],"workspace_roots":["src"],` + good + `}`),
		"another version":           `{"version":2,"credentials":[]}`,
		"something after the table": row("") + "{}",
		"no table":                  "",
	} {
		if err := load(body); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
