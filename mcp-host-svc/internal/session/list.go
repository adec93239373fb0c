package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

// ListLimits bounds what a server may list.
type ListLimits struct {
	Pages int // list_max_pages, 100
	Tools int // list_max_tools, 2000
	Bytes int // list_max_bytes, 8 MiB
}

func (l ListLimits) withDefaults() ListLimits {
	if l.Pages <= 0 {
		l.Pages = 100
	}
	if l.Tools <= 0 {
		l.Tools = 2000
	}
	if l.Bytes <= 0 {
		l.Bytes = 8 << 20
	}
	return l
}

// maxToolName is MCP's own limit for the name of a tool, in bytes.
const maxToolName = 128

// Tool is one tool as the server defined it.
type Tool struct {
	Name string
	Raw  []byte // the definition, byte for byte
	Wire string // its fingerprint
}

// Problem is a definition that can't be used, and why. The others are not
// affected.
type Problem struct {
	Name   string // as far as it could be read
	Reason string
}

// Listing is a whole answer to tools/list, all pages of it.
type Listing struct {
	Tools    []Tool // in the server's order
	Problems []Problem
	TTL      time.Duration // how long the server says that it holds; 0: it does not say
}

// Find returns the tool called name.
func (l *Listing) Find(name string) (Tool, bool) {
	for _, t := range l.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// List asks for all pages of tools/list.
func (s *Session) List(ctx context.Context) (*Listing, error) {
	out := &Listing{}
	seen := map[string]bool{}
	names := map[string]bool{}
	size := 0
	for page, cursor := 1, []byte(nil); ; page++ {
		result, err := s.conn.Do(ctx, wire.Request{Method: "tools/list", Params: func(int64) []byte { return s.listParams(cursor) }})
		if err != nil {
			return nil, err
		}
		if size += len(result); size > s.cfg.List.Bytes {
			return nil, &ListError{Kind: TooManyBytes, Limit: int64(s.cfg.List.Bytes), Got: int64(size)}
		}
		if err := out.add(result, names, s.cfg.List.Tools); err != nil {
			return nil, err
		}
		next, more := jsonview.Get(result, "nextCursor")
		if !more || string(next) == "null" || string(next) == `""` {
			return out, nil
		}
		if seen[string(next)] {
			return nil, &ListError{Kind: CursorRepeats, Name: string(next[:min(len(next), 64)])}
		}
		if page >= s.cfg.List.Pages {
			return nil, &ListError{Kind: TooManyPages, Limit: int64(s.cfg.List.Pages), Got: int64(page + 1)}
		}
		seen[string(next)] = true
		cursor = next
		if err := ctx.Err(); err != nil {
			return nil, &wire.InterruptedError{Cause: context.Cause(ctx)}
		}
	}
}

// listParams assembles the parameters around the server's own cursor text.
func (s *Session) listParams(cursor []byte) []byte {
	b := []byte{'{'}
	if s.info.Era == EraModern {
		b = append(append(append(b, `"_meta":{`...), s.modernMeta()...), '}')
	}
	if cursor != nil {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, `"cursor":`...), cursor...)
	}
	return append(b, '}')
}

func (l *Listing) add(page []byte, names map[string]bool, most int) error {
	tools, ok := jsonview.Get(page, "tools")
	if !ok || jsonview.Kind(tools) != '[' {
		return &ListError{Kind: NoToolsArray}
	}
	for raw := range jsonview.Elements(tools) {
		if got := len(l.Tools) + len(l.Problems) + 1; got > most {
			return &ListError{Kind: TooManyTools, Limit: int64(most), Got: int64(got)}
		}
		t, problem := readTool(raw)
		if problem == "" && names[t.Name] {
			problem = "the server lists this name more than once; the first definition counts"
		}
		if problem != "" {
			l.Problems = append(l.Problems, Problem{Name: t.Name, Reason: problem})
			continue
		}
		names[t.Name] = true
		l.Tools = append(l.Tools, t)
	}
	if ttl, ok := jsonview.Get(page, "ttlMs"); ok {
		l.setTTL(ttl)
	}
	return nil
}

// setTTL keeps the shortest of what the pages say, and at most a day: a server
// can't keep the host from ever looking again.
func (l *Listing) setTTL(raw []byte) {
	var ms float64
	if json.Unmarshal(raw, &ms) != nil || ms <= 0 {
		return
	}
	ttl := 24 * time.Hour
	if ms < float64(ttl/time.Millisecond) {
		ttl = time.Duration(ms) * time.Millisecond
	}
	if l.TTL == 0 || ttl < l.TTL {
		l.TTL = ttl
	}
}

// readTool checks one definition as strictly as what is decided about it needs:
// the model, the card and the fingerprint must all be about the same text.
func readTool(raw []byte) (Tool, string) {
	name, _ := jsonview.GetString(raw, "name")
	t := Tool{Name: clip(name), Raw: raw}
	if err := rawjson.CheckObject(raw, rawjson.Limits{}); err != nil {
		return t, fmt.Sprintf("the definition is not usable JSON: %v", err)
	}
	switch {
	case name == "":
		return t, "the definition has no name"
	case len(name) > maxToolName:
		return t, fmt.Sprintf("the name is longer than %d bytes", maxToolName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError || unicode.IsSpace(r) }):
		return t, "the name holds blanks, control or invisible characters"
	}
	if schema, ok := jsonview.Get(raw, "inputSchema"); !ok || jsonview.Kind(schema) != '{' {
		return t, "the definition has no inputSchema object"
	}
	t.Wire = fingerprint.Wire(raw)
	return t, ""
}

func clip(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxToolName)], "\uFFFD")
}
