package writtoken_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/writ-dev/writ/clients/go/writtoken"
	"pgregory.net/rapid"
)

func reasonOf(t testing.TB, err error) writtoken.Reason {
	t.Helper()
	var e *writtoken.Error
	if !errors.As(err, &e) {
		t.Fatalf("no refusal but %v", err)
	}
	if e.Error() == "" || e.Reason.Next() == "" {
		t.Fatalf("%+v does not say what is wrong and what to do", e)
	}
	return e.Reason
}

func TestWhatIsMintedIsWhatIsVerified(t *testing.T) {
	for _, c := range []writtoken.Claims{claims(), full()} {
		v := verifier()
		v.Audience = c.Audience
		got, err := v.Verify(context.Background(), mint(t, c))
		if err != nil || !cmp.Equal(*got, c, cmpopts.EquateEmpty()) {
			t.Error(err, cmp.Diff(c, *got, cmpopts.EquateEmpty()))
		}
	}
}

func TestMintIsDeterministic(t *testing.T) {
	if mint(t, full()) != mint(t, full()) {
		t.Error("the same claims gave two tokens")
	}
}

func TestExpiryIsNeverCutShort(t *testing.T) {
	c := claims()
	c.Expiry = start().Add(59*time.Second + 1)
	_, got, err := writtoken.Unverified(mint(t, c))
	if err != nil || !got.Expiry.Equal(start().Add(time.Minute)) {
		t.Error(got, err)
	}
}

// One changed character anywhere refuses the writ.
func TestNoOtherTokenIsAccepted(t *testing.T) {
	token := mint(t, full())
	v := verifier()
	v.Audience = audExec
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(token)
		i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		c := rapid.SampledFrom([]byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/\n \x00\xff")).Draw(t, "byte")
		if b[i] == c {
			return
		}
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			b[i] = c
		case 1:
			b = append(b[:i:i], append([]byte{c}, b[i:]...)...)
		default:
			b = append(b[:i:i], b[i+1:]...)
		}
		if _, err := v.Verify(context.Background(), string(b)); err == nil {
			t.Fatalf("accepted %q", b)
		}
	})
}

func TestTimes(t *testing.T) {
	token := mint(t, claims())
	for _, c := range []struct {
		after time.Duration
		skew  time.Duration
		want  writtoken.Reason
	}{
		{-6 * time.Second, 0, writtoken.ReasonNotYetValid}, {-5 * time.Second, 0, ""}, {64 * time.Second, 0, ""},
		{65 * time.Second, 0, writtoken.ReasonExpired}, {-1, -1, writtoken.ReasonNotYetValid}, {0, -1, ""},
		{59 * time.Second, -1, ""}, {60 * time.Second, -1, writtoken.ReasonExpired},
	} {
		v := verifier()
		v.Skew, v.Now = c.skew, func() time.Time { return start().Add(c.after) }
		_, err := v.Verify(context.Background(), token)
		if c.want == "" && err != nil || c.want != "" && reasonOf(t, err) != c.want {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestAnotherNamespaceOrNone(t *testing.T) {
	v := verifier()
	v.Namespaces = []string{"a", "b"}
	_, err := v.Verify(context.Background(), mint(t, claims()))
	if reasonOf(t, err) != writtoken.ReasonNamespace {
		t.Error(err)
	}
	v.Namespaces = nil
	if _, err := v.Verify(context.Background(), mint(t, claims())); err != nil {
		t.Error(err)
	}
}

func TestChecksAgainstWhatIsAboutToHappen(t *testing.T) {
	c := full()
	folder := writtoken.Folder{Path: "/work/p", Dev: 2049, Ino: 18446744073709551615}
	swapped := writtoken.Folder{Path: "/work/p", Dev: 2049, Ino: 8}
	readOnly := writtoken.Folder{Path: "/work/ro", Dev: 2049, Ino: 7}
	other := input()
	other.Env[0].Value = "2"
	elsewhere := input()
	elsewhere.Cwd = "."
	noNetwork := full()
	noNetwork.Scopes.Network.Mode = "none"
	noCommand := claims()
	for name, check := range map[string]struct {
		err  error
		want writtoken.Reason
	}{
		"the tool":            {c.CheckTool(c.Tool, c.Fingerprint, c.ProviderDigest), ""},
		"another tool":        {c.CheckTool("mcp.fs.write", c.Fingerprint, c.ProviderDigest), writtoken.ReasonTool},
		"a changed schema":    {c.CheckTool(c.Tool, strings.Repeat("00", 32), c.ProviderDigest), writtoken.ReasonFingerprint},
		"a changed provider":  {c.CheckTool(c.Tool, c.Fingerprint, strings.Repeat("00", 32)), writtoken.ReasonProvider},
		"the arguments":       {c.CheckArguments([]byte(arguments)), ""},
		"…992 for …993":       {c.CheckArguments([]byte(strings.Replace(arguments, "993", "992", 1))), writtoken.ReasonArguments},
		"a space more":        {c.CheckArguments([]byte(arguments + " ")), writtoken.ReasonArguments},
		"no arguments":        {c.CheckArguments(nil), writtoken.ReasonArguments},
		"the command":         {c.CheckCommand(input(), "open"), ""},
		"another variable":    {c.CheckCommand(other, "open"), writtoken.ReasonArguments},
		"another folder":      {c.CheckCommand(elsewhere, "open"), writtoken.ReasonScopes},
		"another network":     {c.CheckCommand(input(), "none"), writtoken.ReasonScopes},
		"network not allowed": {noNetwork.CheckCommand(input(), "open"), writtoken.ReasonScopes},
		"no command at all":   {noCommand.CheckCommand(input(), "none"), writtoken.ReasonScopes},
		"a path":              {c.CheckPath(folder, true), ""},
		"a read-only path":    {c.CheckPath(readOnly, false), ""},
		"write where read is": {c.CheckPath(readOnly, true), writtoken.ReasonScopes},
		"a swapped folder":    {c.CheckPath(swapped, false), writtoken.ReasonScopes},
		"an unlisted path":    {c.CheckPath(writtoken.Folder{Path: "/etc"}, false), writtoken.ReasonScopes},
		"the root":            {c.CheckRoot(&folder), ""},
		"another root":        {c.CheckRoot(&swapped), writtoken.ReasonScopes},
		"no root":             {c.CheckRoot(nil), writtoken.ReasonScopes},
		"a root, none given":  {noCommand.CheckRoot(&folder), writtoken.ReasonScopes},
		"none, none given":    {noCommand.CheckRoot(nil), ""},
	} {
		if check.want == "" && check.err != nil || check.want != "" && reasonOf(t, check.err) != check.want {
			t.Errorf("%s: %v", name, check.err)
		}
	}
}

// Moving bytes from one text to the next must not give the same commitment.
func TestCommandCommitmentIsInjective(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) writtoken.CommandInput {
		word := rapid.StringMatching(`[ab]{0,3}`)
		in := writtoken.CommandInput{Cwd: word.Draw(t, "cwd")}
		if rapid.Bool().Draw(t, "argv") {
			in.Argv = rapid.SliceOfN(word, 1, 3).Draw(t, "words")
		} else {
			in.Line = word.Draw(t, "line")
		}
		for _, n := range rapid.SliceOfN(word, 0, 2).Draw(t, "names") {
			in.Env = append(in.Env, writtoken.EnvVar{Name: n, Value: word.Draw(t, "value")})
		}
		if rapid.Bool().Draw(t, "has stdin") {
			in.Stdin = []byte(word.Draw(t, "stdin"))
		}
		return in
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := draw.Draw(t, "x"), draw.Draw(t, "y")
		same := string(writtoken.CommitCommand(salt(), x)) == string(writtoken.CommitCommand(salt(), y))
		if same != cmp.Equal(x, y) {
			t.Fatalf("%+v and %+v", x, y)
		}
	})
}

func TestMintRefusesWhatVerifyWould(t *testing.T) {
	for name, change := range map[string]func(*writtoken.Claims){
		"no tool":              func(c *writtoken.Claims) { c.Tool = "" },
		"no namespace":         func(c *writtoken.Claims) { c.Namespace = "" },
		"unknown class":        func(c *writtoken.Claims) { c.Class = "harmless" },
		"unknown kind":         func(c *writtoken.Claims) { c.Subject.Kind = "root" },
		"short salt":           func(c *writtoken.Claims) { c.Args.Salt = []byte("short") },
		"upper-case digest":    func(c *writtoken.Claims) { c.Fingerprint = strings.Repeat("AB", 32) },
		"card without a card":  func(c *writtoken.Claims) { c.Decision.Cause = "card" },
		"grant without one":    func(c *writtoken.Claims) { c.Decision.Cause = "grant" },
		"unknown cause":        func(c *writtoken.Claims) { c.Decision.Cause = "luck" },
		"hosts without mode":   func(c *writtoken.Claims) { c.Scopes.Network.Hosts = []string{"example.org"} },
		"mode without hosts":   func(c *writtoken.Claims) { c.Scopes.Network.Mode = "hosts" },
		"no network mode":      func(c *writtoken.Claims) { c.Scopes.Network.Mode = "" },
		"relative root":        func(c *writtoken.Claims) { c.Scopes.MCPRoot = &writtoken.Folder{Path: "work"} },
		"ends before it":       func(c *writtoken.Claims) { c.Expiry = c.NotBefore },
		"lives for a day":      func(c *writtoken.Claims) { c.Expiry = c.NotBefore.Add(24 * time.Hour) },
		"no time":              func(c *writtoken.Claims) { c.NotBefore = time.Time{} },
		"too long a name":      func(c *writtoken.Claims) { c.Tool = strings.Repeat("x", 2000) },
		"too large a token":    func(c *writtoken.Claims) { c.Scopes.Paths = manyPaths(256) },
		"too many paths":       func(c *writtoken.Claims) { c.Scopes.Paths = manyPaths(257) },
		"exec without timeout": func(c *writtoken.Claims) { c.Exec = &writtoken.Exec{MAC: make([]byte, 32), Cwd: "."} },
	} {
		c := claims()
		change(&c)
		if _, err := writtoken.Mint(testKey(), kid, c); err == nil || reasonOf(t, err) != writtoken.ReasonMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := writtoken.Mint(nil, kid, claims()); err == nil {
		t.Error("no key, no writ")
	}
}

func manyPaths(n int) []writtoken.PathScope {
	return repeat(n, writtoken.PathScope{Folder: writtoken.Folder{Path: "/" + strings.Repeat("p", 300)}, Access: "read"})
}

func repeat(n int, p writtoken.PathScope) (list []writtoken.PathScope) {
	for range n {
		list = append(list, p)
	}
	return list
}

func TestKeySources(t *testing.T) {
	ctx := context.Background()
	now := start()
	public := testKey().Public().(ed25519.PublicKey)
	var fetched int
	var fail error
	published := map[string]ed25519.PublicKey{"k1": public}
	r := &writtoken.RefreshingKeys{Now: func() time.Time { return now }, Fetch: func(context.Context) (map[string]ed25519.PublicKey, error) {
		fetched++
		return published, fail
	}}
	expect := func(step, kid string, ok bool, reads int) {
		t.Helper()
		key, err := r.Key(ctx, kid)
		if (err == nil) != ok || ok && !key.Equal(public) || fetched != reads {
			t.Fatalf("%s: %v %v after %d reads", step, key, err, fetched)
		}
	}
	expect("first use reads", "k1", true, 1)
	expect("then it is known", "k1", true, 1)
	expect("invented kids do not flood the issuer", "k2", false, 1)
	now = now.Add(3 * time.Second)
	published = map[string]ed25519.PublicKey{"k2": public}
	expect("a rotated key works at once", "k2", true, 2)
	expect("a withdrawn key is gone", "k1", false, 2)
	now, fail = now.Add(6*time.Minute), errors.New("down")
	expect("old keys live on while the issuer is down", "k2", true, 3)
	now = now.Add(2 * time.Hour)
	if _, err := r.Key(ctx, "k2"); err == nil || err.Error() != "down" {
		t.Fatalf("but not for ever: %v", err)
	}
	fail = nil
	now = now.Add(3 * time.Second)
	expect("and it recovers", "k2", true, 5)
}

func TestSourceThatCannotTellRefusesAndKeepsTheCause(t *testing.T) {
	v := verifier()
	down := errors.New("permission service is down")
	v.Issuers[issuer] = &writtoken.RefreshingKeys{Fetch: func(context.Context) (map[string]ed25519.PublicKey, error) { return nil, down }}
	_, err := v.Verify(context.Background(), mint(t, claims()))
	if reasonOf(t, err) != writtoken.ReasonUnknownKey || !errors.Is(err, down) || !strings.Contains(err.Error(), down.Error()) {
		t.Error(err)
	}
}

func TestKeySets(t *testing.T) {
	public, other := testKey().Public().(ed25519.PublicKey), otherKey().Public().(ed25519.PublicKey)
	keys := map[string]ed25519.PublicKey{"b": public, "a": other}
	got, err := writtoken.ParseKeySet(writtoken.AppendKeySet(nil, keys))
	if err != nil || !got["b"].Equal(public) || !got["a"].Equal(other) || len(got) != 2 {
		t.Fatal(got, err)
	}
	// The example key of RFC 8037, appendix A.3.
	x, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if got := writtoken.KeyID(x); err != nil || got != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Error(got, err)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"keys":1}`, `{"keys":[{}]}`, `{"keys":[{"kty":"RSA","crv":"Ed25519","kid":"a","x":""}]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"AA"}]}`} {
		if keys, err := writtoken.ParseKeySet([]byte(bad)); err == nil {
			t.Errorf("%s gave %v", bad, keys)
		}
	}
}

func FuzzVerify(f *testing.F) {
	v := verifier()
	f.Add(mint(f, claims()))
	f.Add(mint(f, full()))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	good := map[string]bool{mint(f, claims()): true}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := v.Verify(context.Background(), token); (err == nil) != good[token] {
			t.Fatalf("%q: %v", token, err)
		}
	})
}

// FuzzClaims signs arbitrary payloads: what a trusted key says is still read strictly.
func FuzzClaims(f *testing.F) {
	v := verifier()
	for _, c := range []writtoken.Claims{claims(), full()} {
		payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(mint(f, c), ".")[1])
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := v.Verify(context.Background(), sign(`{"alg":"EdDSA","typ":"writ+jwt","kid":"`+kid+`"}`, string(payload), testKey()))
		if err != nil {
			reasonOf(t, err)
			return
		}
		again, err := v.Verify(context.Background(), mint(t, *c))
		if err != nil || !cmp.Equal(c, again, cmpopts.EquateEmpty()) {
			t.Fatalf("%s reads as %+v, which is written as something else: %v", payload, c, err)
		}
	})
}

// sign makes a token of any header and payload.
func sign(header, payload string, key ed25519.PrivateKey) string {
	enc := base64.RawURLEncoding.EncodeToString
	signed := enc([]byte(header)) + "." + enc([]byte(payload))
	return signed + "." + enc(ed25519.Sign(key, []byte(signed)))
}
