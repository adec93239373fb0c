// Command echo-server is a small MCP server to try Writ with. It answers what it was sent, byte for byte, keeps notes in a
// file, and shows what a server can see of the machine.
//
//	echo-server [-notes FILE] [-record FILE]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/writ-dev/writ/examples/internal/stdio"
)

func main() {
	notes := flag.String("notes", "notes.txt", "the file that append_note writes into")
	record := flag.String("record", "", "a file for every line that comes in (>) and goes out (<)")
	flag.Parse()
	if err := run(*notes, *record); err != nil {
		fmt.Fprintln(os.Stderr, "echo-server:", err)
		os.Exit(1)
	}
}

func run(notes, record string) error {
	w, err := stdio.OpenRecord(record)
	if err != nil {
		return err
	}
	s := &stdio.Server{Name: "echo-server", Version: "1.0.0", Tools: tools, Record: w, Call: func(c stdio.Call) (json.RawMessage, error) {
		switch c.Name {
		case "echo":
			return echo(c), nil
		case "append_note":
			return appendNote(notes, c.Arguments)
		case "show_files":
			return showFiles(c.Arguments)
		}
		return nil, stdio.ErrNoTool
	}}
	return s.Serve(os.Stdin, os.Stdout)
}

// tools are written by hand, members in no particular order and numbers in no particular spelling: whoever shows them on
// has to keep them.
func tools() []json.RawMessage {
	return []json.RawMessage{
		[]byte(`{"name":"echo","title":"Echo","description":"Answers the arguments as they came, and the request's _meta.",` +
			`"inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"additionalProperties":true},"annotations":{"readOnlyHint":true}}`),
		[]byte(`{"description":"Appends a line to the notes, then waits.","name":"append_note","inputSchema":{"properties":{` +
			`"text":{"type":"string","maxLength":1e4},"wait_ms":{"maximum":600000.0,"minimum":0,"type":"integer"}},"required":["text"],"type":"object"}}`),
		[]byte(`{"name":"show_files","description":"Lists a folder or shows the begin of a file, as this server sees it.",` +
			`"inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]},"annotations":{"readOnlyHint":true}}`),
	}
}

func echo(c stdio.Call) json.RawMessage {
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"structuredContent":%s,"_meta":{"writ.dev/request-meta":%s}}`,
		stdio.Quote(string(c.Arguments)), c.Arguments, c.Meta)
}

func appendNote(file string, arguments json.RawMessage) (json.RawMessage, error) {
	var in struct {
		Text   string `json:"text"`
		WaitMS int    `json:"wait_ms"`
	}
	if err := json.Unmarshal(arguments, &in); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.WriteString(in.Text + "\n"); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(in.WaitMS) * time.Millisecond)
	return stdio.Text("noted", false), nil
}

// showFiles shows at most this much.
const maxShown = 4 << 10

func showFiles(arguments json.RawMessage) (json.RawMessage, error) {
	var in struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(arguments, &in); err != nil {
		return nil, err
	}
	info, err := os.Stat(in.Path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		b, err := os.ReadFile(in.Path)
		return stdio.Text(string(b[:min(len(b), maxShown)]), false), err
	}
	entries, err := os.ReadDir(in.Path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, filepath.Join(in.Path, e.Name()))
	}
	text := strings.Join(names, "\n")
	return stdio.Text(text[:min(len(text), maxShown)], false), nil
}
