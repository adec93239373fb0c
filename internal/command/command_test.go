package command_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/rawjson"
	"pgregory.net/rapid"
)

func TestDefaults(t *testing.T) {
	got, err := command.Parse([]byte(`{"command":"make test"}`))
	want := command.Command{Line: "make test", Cwd: ".", Timeout: 2 * time.Minute, Network: "none", Isolation: "isolated-soft-caps"}
	if err != nil || !cmp.Equal(got, want) {
		t.Fatal(err, cmp.Diff(want, got))
	}
}

func TestEverythingGiven(t *testing.T) {
	got, err := command.Parse([]byte(`{"argv":["git","log","a b"],"cwd":"./src//x/","env":{"B":"2","A":""},"stdin":"","timeout_seconds":1.5,"network":"open","isolation":"host"}`))
	want := command.Command{Argv: []string{"git", "log", "a b"}, Cwd: "src/x", Env: []command.Var{{Name: "B", Value: "2"}, {Name: "A"}},
		Stdin: []byte{}, Timeout: 1500 * time.Millisecond, Network: "open", Isolation: "host"}
	if err != nil || !cmp.Equal(got, want) {
		t.Fatal(err, cmp.Diff(want, got))
	}
}

func TestBadInputNamesTheFieldAndTheNextStep(t *testing.T) {
	long := strings.Repeat("x", command.MaxString+1)
	cases := []struct {
		arguments string
		problem   command.Problem
		field     string
	}{
		{`[]`, command.NotJSON, ""},
		{`{"command":"a","command":"b"}`, command.NotJSON, ""},
		{`{"command":"a","\u0063ommand":"rm -rf /"}`, command.NotJSON, ""},
		{`{}`, command.Missing, "command"},
		{`{"cwd":"x"}`, command.Missing, "command"},
		{`{"command":"a","argv":["a"]}`, command.Conflict, "argv"},
		{`{"command":"a","Command":"b"}`, command.UnknownField, "Command"},
		{`{"command":"a","shell":"bash"}`, command.UnknownField, "shell"},
		{`{"command":["a"]}`, command.WrongType, "command"},
		{`{"command":null}`, command.WrongType, "command"},
		{`{"command":" \n"}`, command.Invalid, "command"},
		{`{"command":"a\u0000b"}`, command.Invalid, "command"},
		{`{"command":"` + long + `"}`, command.TooLong, "command"},
		{`{"argv":"ls"}`, command.WrongType, "argv"},
		{`{"argv":[]}`, command.Invalid, "argv"},
		{`{"argv":[""]}`, command.Invalid, "argv"},
		{`{"argv":["a",1]}`, command.WrongType, "argv[1]"},
		{`{"argv":["a","\u0000"]}`, command.Invalid, "argv[1]"},
		{`{"argv":[` + strings.Repeat(`"a",`, command.MaxArgv) + `"a"]}`, command.TooLong, "argv"},
		{`{"command":"a","cwd":""}`, command.Invalid, "cwd"},
		{`{"command":"a","cwd":".."}`, command.Invalid, "cwd"},
		{`{"command":"a","cwd":"a/../../b"}`, command.Invalid, "cwd"},
		{`{"command":"a","cwd":"/w/../etc"}`, command.Invalid, "cwd"},
		{`{"command":"a","cwd":1}`, command.WrongType, "cwd"},
		{`{"command":"a","env":[]}`, command.WrongType, "env"},
		{`{"command":"a","env":{"1A":"x"}}`, command.Invalid, "env.1A"},
		{`{"command":"a","env":{"A=B":"x"}}`, command.Invalid, "env.A=B"},
		{`{"command":"a","env":{"":"x"}}`, command.Invalid, "env."},
		{`{"command":"a","env":{"A":1}}`, command.WrongType, "env.A"},
		{`{"command":"a","stdin":{}}`, command.WrongType, "stdin"},
		{`{"command":"a","timeout_seconds":"5"}`, command.WrongType, "timeout_seconds"},
		{`{"command":"a","timeout_seconds":0.5}`, command.Invalid, "timeout_seconds"},
		{`{"command":"a","timeout_seconds":3601}`, command.Invalid, "timeout_seconds"},
		{`{"command":"a","timeout_seconds":1e999}`, command.Invalid, "timeout_seconds"},
		{`{"command":"a","network":"host"}`, command.Invalid, "network"},
		{`{"command":"a","network":true}`, command.WrongType, "network"},
		{`{"command":"a","isolation":"none"}`, command.Invalid, "isolation"},
	}
	for _, c := range cases {
		got, err := command.Parse([]byte(c.arguments))
		var e *command.Error
		if !errors.As(err, &e) {
			t.Errorf("%.60s was accepted as %+v", c.arguments, got)
			continue
		}
		if e.Problem != c.problem || e.Field != c.field || e.Next == "" || e.Detail == "" {
			t.Errorf("%.60s: %s %q: %v", c.arguments, e.Problem, e.Field, e)
		}
		if e.Problem == command.TooLong && (e.Limit == 0 || !strings.Contains(e.Error(), strconv.FormatInt(e.Limit, 10))) {
			t.Errorf("%.60s: the limit is not in %q", c.arguments, e)
		}
	}
}

func TestMalformedJSONKeepsItsCause(t *testing.T) {
	_, err := command.Parse([]byte(`{"command":"a","command":"b"}`))
	var cause *rawjson.Error
	if !errors.As(err, &cause) || cause.Kind != rawjson.DuplicateName {
		t.Fatal(err)
	}
}

func TestDisplayOfALineIsTheLine(t *testing.T) {
	c, err := command.Parse([]byte(`{"command":"echo  \"x\" > 'a b'"}`))
	if err != nil || c.Display() != `echo  "x" > 'a b'` {
		t.Fatal(c.Display(), err)
	}
}

// What a person reads on the card is what runs: a real shell splits the
// displayed argv into exactly the arguments that the program gets.
func TestDisplayOfArgvMeansTheSameToAShell(t *testing.T) {
	argument := rapid.StringOf(rapid.RuneFrom([]rune("ab '\"\\$`!*?[]{}()<>|&;#~=\n\té-")))
	rapid.Check(t, func(t *rapid.T) {
		argv := rapid.SliceOfN(argument, 1, 5).Draw(t, "argv")
		shown := command.Command{Argv: argv}.Display()
		out, err := exec.Command("/bin/sh", "-c", `printf '%s\0' `+shown).Output()
		if err != nil || string(out) != strings.Join(argv, "\x00")+"\x00" {
			t.Fatalf("%q shows %s, a shell sees %q %v", argv, shown, out, err)
		}
	})
}

func TestParseReadsBackWhatWasWritten(t *testing.T) {
	printable := rapid.StringMatching(`[^\x00]*`).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) })
	rapid.Check(t, func(t *rapid.T) {
		argv := append([]string{"p"}, rapid.SliceOf(printable).Draw(t, "argv")...)
		env := rapid.MapOf(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,5}`), printable).Draw(t, "env")
		stdin := rapid.String().Draw(t, "stdin")
		b, err := json.Marshal(map[string]any{"argv": argv, "env": env, "stdin": stdin})
		if err != nil {
			t.Fatal(err)
		}
		c, err := command.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range c.Env {
			got[v.Name] = v.Value
		}
		if !cmp.Equal(c.Argv, argv) || !cmp.Equal(got, env) || string(c.Stdin) != stdin {
			t.Fatalf("%s became %+v", b, c)
		}
	})
}

func TestDefinitionIsWellFormedAndKnowsEveryField(t *testing.T) {
	if err := rawjson.CheckObject([]byte(command.Definition), rawjson.Limits{}); err != nil {
		t.Fatal(err)
	}
	start, end, err := rawjson.Locate([]byte(command.Definition), "/inputSchema/properties")
	if err != nil {
		t.Fatal(err)
	}
	for m := range rawjson.Members([]byte(command.Definition[start:end])) {
		_, err := command.Parse([]byte(`{"` + m.Name + `":{}}`))
		var e *command.Error
		if errors.As(err, &e) && e.Problem == command.UnknownField {
			t.Errorf("the schema has %s, the parser does not", m.Name)
		}
	}
	name, _, err := rawjson.Get([]byte(command.Definition), "name")
	if err != nil || string(name) != `"`+command.ToolName+`"` {
		t.Error(string(name), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"command":"a","cwd":"x","env":{"A":"b"},"stdin":"c","timeout_seconds":3,"network":"open","isolation":"host"}`))
	f.Add([]byte(`{"argv":["a","b"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := command.Parse(b)
		var e *command.Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("untyped %v", err)
			}
			return
		}
		if (c.Line == "") == (len(c.Argv) == 0) || c.Timeout < command.MinTimeout || c.Timeout > command.MaxTimeout ||
			c.Cwd == ".." || strings.HasPrefix(c.Cwd, "../") || c.Display() == "" {
			t.Fatalf("%s became %+v", b, c)
		}
	})
}
