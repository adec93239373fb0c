// Package fakeserver is an MCP server for tests that misbehaves on request. A
// test binary becomes the server when it is started with FAKE_MODE set: its
// TestMain calls RunIfAsked first.
//
// FAKE_MODE is a list of words, separated by commas (see the constants).
// FAKE_LOG, if set, names a file to which every line that the server receives is
// appended, so that a test can see which bytes reached it.
package fakeserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ModeVar names the variable that turns a test binary into the server.
const ModeVar = "FAKE_MODE"

// RunIfAsked runs the server and exits if this process was started as one.
func RunIfAsked() {
	mode, asked := os.LookupEnv(ModeVar)
	if !asked {
		return
	}
	s := &server{out: os.Stdout, words: strings.Split(mode, ","), schema: `{"type":"object"}`}
	if path := os.Getenv("FAKE_LOG"); path != "" {
		s.log, _ = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	s.run()
	os.Exit(0)
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Cursor    string          `json:"cursor"`
		Responses json.RawMessage `json:"inputResponses"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
}

type server struct {
	mu        sync.Mutex
	out       *os.File
	log       *os.File
	words     []string
	schema    string
	roots     string
	cancelled map[string]bool
	pages     int
	lists     int
	calls     int
}

func (s *server) is(word string) bool { return slices.Contains(s.words, word) }

func (s *server) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, line)
}

func (s *server) answer(id json.RawMessage, result string) {
	line := `{"result":` + result + `,"jsonrpc":"2.0","id":` + string(id) + `}`
	switch {
	case s.is("id-first"):
		line = `{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`
	case s.is("string-id"):
		line = `{"jsonrpc":"2.0","id":"` + string(id) + `","result":` + result + `}`
	case s.is("untagged"):
		line = `{"id":` + string(id) + `,"result":` + result + `}`
	case s.is("split"):
		line = "{\n\"jsonrpc\":\"2.0\",\n\"id\":" + string(id) + ",\n\"result\":" + result + "\n}"
	case s.is("trailing"):
		line += " -- thank you"
	case s.is("twice"):
		line += "\n" + line
	case s.is("strays"):
		line = `{"jsonrpc":"2.0","id":4711,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":1999999999,"result":{}}` + "\n" +
			`{"jsonrpc":"2.0","id":"what","result":{}}` + "\n" + line
	case s.is("batch"):
		line = "[" + line + "]"
	case s.is("two-on-a-line"):
		line = `{"jsonrpc":"2.0","method":"notifications/message","params":{}}` + line
	}
	s.say(line)
}

func (s *server) fail(id json.RawMessage, code int, text string) {
	s.say(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":{"code":` + strconv.Itoa(code) + `,"message":` + strconv.Quote(text) + `,"data":{"n":9007199254740993}}}`)
}

func (s *server) run() {
	s.cancelled = map[string]bool{}
	if s.is("bom") {
		fmt.Fprint(s.out, "\xef\xbb\xbf")
	}
	if s.is("noise") {
		s.say("Welcome to the server!\n\n[INFO] listening {on stdio\n{\"not\": \"a message\"}\n\"text\"\n[1,2]")
	}
	if s.is("stderr") {
		fmt.Fprintln(os.Stderr, strings.Repeat("chatty ", 40_000)+"\nlast words on stderr")
	}
	if s.is("grandchild") {
		cmd := exec.Command("sleep", "997")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		_ = cmd.Start()
	}
	if s.is("exit-at-start") {
		fmt.Fprintln(os.Stderr, "cannot open the database")
		os.Exit(7)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		if s.log != nil {
			_, _ = s.log.Write(line)
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		if s.is("mute") {
			continue
		}
		s.handle(m)
	}
	if s.is("ignore-eof") {
		for {
			time.Sleep(time.Hour)
		}
	}
}

func (s *server) handle(m message) {
	switch m.Method {
	case "server/discover":
		s.discover(m)
	case "initialize":
		s.initialize(m)
	case "notifications/initialized":
		if s.is("roots") {
			s.say(`{"jsonrpc":"2.0","id":"r1","method":"roots/list"}`)
		}
		if s.is("sampling") {
			s.say(`{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`)
			s.say(`{"jsonrpc":"2.0","id":"e1","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`)
		}
		if s.is("flood") {
			for i := range 500 {
				s.say(`{"jsonrpc":"2.0","id":` + strconv.Itoa(i) + `,"method":"roots/list"}`)
			}
		}
		if s.is("storm") {
			for range 1000 {
				s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
		}
	case "notifications/cancelled":
		s.mu.Lock()
		s.cancelled[string(m.Params.RequestID)] = true
		s.mu.Unlock()
	case "tools/list":
		s.list(m)
	case "tools/call":
		go s.call(m)
	case "":
		if bytes.Contains(m.Result, []byte(`"roots"`)) {
			s.mu.Lock()
			s.roots = string(m.Result)
			s.mu.Unlock()
		}
	default:
		if len(m.ID) > 0 {
			s.fail(m.ID, -32601, "method not found: "+m.Method)
		}
	}
}

func (s *server) discover(m message) {
	switch {
	case s.is("exit-on-discover"):
		os.Exit(1)
	case s.is("silent-discover"):
	case s.is("modern"):
		s.answer(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake-modern","version":"2"}},"instructions":"be kind"}`)
	default:
		s.fail(m.ID, -32601, "method not found")
	}
}

func (s *server) initialize(m message) {
	switch {
	case s.is("silent-initialize"):
	case s.is("modern"):
		s.fail(m.ID, -32601, "initialize is gone")
	default:
		s.answer(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"},"instructions":"be kind"}`)
	}
}

// Tools is what the server lists, each definition with its odd spelling.
var Tools = []string{
	`{"name":"echo","title":"Echo","description":"<b>&amp;","inputSchema":{"type":"object","properties":{"z":{"const":9007199254740993},"a":{"default":1.0}}},"x-unknown":{"k":[1.0]},"annotations":{"readOnlyHint":true,"odd":1e2}}`,
	`{ "name" : "block","inputSchema":{"type":"object"}}`,
	`{"name":"die","inputSchema":{"type":"object"}}`,
	`{"name":"big","inputSchema":{"type":"object"}}`,
	`{"name":"fails","inputSchema":{"type":"object"}}`,
	`{"name":"rpcerror","inputSchema":{"type":"object"}}`,
	`{"name":"whoami","inputSchema":{"type":"object"}}`,
	`{"name":"progress","inputSchema":{"type":"object"}}`,
	`{"name":"change","inputSchema":{"type":"object"}}`,
	`{"name":"image","inputSchema":{"type":"object"}}`,
}

func (s *server) list(m message) {
	s.mu.Lock()
	s.lists++
	n, schema := s.lists, s.schema
	s.mu.Unlock()
	page := strings.Join(Tools, ",") + `,{"name":"changing","inputSchema":` + schema + `}`
	switch {
	case s.is("cursor-loop"):
		s.answer(m.ID, `{"tools":[],"nextCursor":"again"}`)
	case s.is("endless-pages"):
		s.answer(m.ID, `{"tools":[],"nextCursor":"`+strconv.Itoa(n)+`"}`)
	case s.is("many-tools"):
		var b []string
		for i := range 3000 {
			b = append(b, `{"name":"t`+strconv.Itoa(i)+`","inputSchema":{}}`)
		}
		s.answer(m.ID, `{"tools":[`+strings.Join(b, ",")+`]}`)
	case s.is("pages") && m.Params.Cursor == "":
		s.answer(m.ID, `{"tools":[`+page+`],"nextCursor":"p2 \"\u00e9"}`)
	case s.is("pages"):
		s.answer(m.ID, `{"tools":[{"name":"second-page","inputSchema":{}}]}`)
	case s.is("bad-tools"):
		s.answer(m.ID, `{"tools":[{"name":"good","inputSchema":{}},{"name":"good","inputSchema":{"x":1}},{"inputSchema":{}},{"name":"dup","name":"other","inputSchema":{}},{"name":"no schema"},{"name":"no-schema"},7,{"name":"also-good","inputSchema":{"anyOf":[]}}]}`)
	case s.is("ttl"):
		s.answer(m.ID, `{"tools":[`+page+`],"ttlMs":1e12}`)
	default:
		s.answer(m.ID, `{"tools":[`+page+`]}`)
	}
}

func (s *server) call(m message) {
	s.mu.Lock()
	s.calls++
	calls := s.calls
	s.mu.Unlock()
	if s.is("lazy-roots") && calls == 1 {
		s.say(`{"jsonrpc":"2.0","id":"r1","method":"roots/list","params":{}}`)
	}
	if s.is("modern-roots") && len(m.Params.Responses) == 0 {
		s.answer(m.ID, `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"st\u00e4te"}`)
		return
	}
	if s.is("modern-elicit") {
		s.answer(m.ID, `{"resultType":"input_required","inputRequests":{"r":{"method":"elicitation/create","params":{}}}}`)
		return
	}
	if len(m.Params.Responses) > 0 {
		s.mu.Lock()
		s.roots = string(m.Params.Responses)
		s.mu.Unlock()
	}
	s.tool(m)
}

func (s *server) tool(m message) {
	args := string(m.Params.Arguments)
	if args == "" {
		args = "{}"
	}
	switch m.Params.Name {
	case "echo", "changing":
		s.answer(m.ID, `{"content":[{"type":"text","text":`+strconv.Quote("called")+`},{"type":"odd","v":1.0}],"structuredContent":`+args+`,"x":9007199254740993,"isError":false}`)
	case "block":
		s.block(m)
	case "die":
		fmt.Fprintln(os.Stderr, "killed by the test")
		os.Exit(3)
	case "big":
		var a struct{ Bytes int }
		_ = json.Unmarshal(m.Params.Arguments, &a)
		s.answer(m.ID, `{"content":[{"type":"text","text":"`+strings.Repeat("x", a.Bytes)+`"}]}`)
	case "fails":
		s.answer(m.ID, `{"content":[{"type":"text","text":"no"}],"structuredContent":{"why":1.0},"isError":true}`)
	case "rpcerror":
		s.fail(m.ID, -32602, "bad \"params\"")
	case "whoami":
		cwd, _ := os.Getwd()
		s.mu.Lock()
		roots := s.roots
		s.mu.Unlock()
		out, _ := json.Marshal(map[string]any{"pid": os.Getpid(), "cwd": cwd, "env": os.Environ(), "roots": roots})
		s.answer(m.ID, `{"content":[],"structuredContent":`+string(out)+`}`)
	case "progress":
		for i := range 3 {
			s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Params.Meta.Token) + `,"progress":` + strconv.Itoa(i) + `,"total":3.0}}`)
		}
		s.answer(m.ID, `{"content":[]}`)
	case "change":
		s.mu.Lock()
		s.schema = `{"type":"object","changed":` + strconv.Itoa(len(s.schema)) + `}`
		s.mu.Unlock()
		if !s.is("silent-change") {
			s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		s.answer(m.ID, `{"content":[]}`)
	case "image":
		s.answer(m.ID, `{"content":[{"type":"text","text":"a \u0041"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png","x":1.0},{"type":"resource","resource":{"uri":"a:b","mimeType":"application/zip","blob":"emlw"}},{"type":"audio","data":"not base64!","mimeType":"audio/wav"}],"structuredContent":{"data":"aGVsbG8="}}`)
	default:
		s.fail(m.ID, -32602, "unknown tool")
	}
}

// block answers when the file named by the argument "until" exists, and never
// when the request is cancelled.
func (s *server) block(m message) {
	var a struct{ Until, Began string }
	_ = json.Unmarshal(m.Params.Arguments, &a)
	if a.Began != "" {
		_ = os.WriteFile(a.Began, nil, 0o600)
	}
	for {
		s.mu.Lock()
		gone := s.cancelled[string(m.ID)]
		s.mu.Unlock()
		if gone {
			return
		}
		if _, err := os.Stat(a.Until); err == nil {
			s.answer(m.ID, `{"content":[{"type":"text","text":"released"}]}`)
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
