package connector

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// Limits of one listing, as docs/limits.md names them.
const (
	MaxDefinition = 1 << 20 // tool_definition_max_bytes
	MaxToolName   = 256     // tool_name_max_bytes
)

// Listed is a tool as a server listed it.
type Listed struct {
	Name       string
	Definition []byte // as received, never re-marshalled
}

// Listing is what mcp-host answered.
type Listing struct {
	Tools         []Listed
	Digest        string
	ServerVersion string
	Time          time.Time
	Isolation     string // in words; empty where nothing runs
}

// Tool is a listed tool that can be used.
type Tool struct {
	Name        string
	Definition  []byte
	Wire        string
	Semantic    string
	Destructive bool // the server's own hint; it can only raise
	ReadOnly    bool // the server's own hint, shown and never acted on
}

// Catalogue is a listing after the checks.
type Catalogue struct {
	Tools         []Tool
	Rejected      []*fault.Error // one for each tool that was left out
	Digest        string
	ServerVersion string
	Time          time.Time
	Isolation     string
	hash          string // over everything that is stored of it
}

// check makes a catalogue of a listing. A tool that is malformed is left out and reported; the rest stays (ruling 1).
func check(l Listing) *Catalogue {
	c := &Catalogue{Digest: l.Digest, ServerVersion: l.ServerVersion, Time: l.Time, Isolation: l.Isolation, hash: hash(l)}
	seen := map[string]bool{}
	for _, t := range l.Tools {
		tool, problem := checkTool(t)
		if problem == nil && seen[t.Name] {
			problem = fault.New(fault.AliasCollision, t.Name, "the server lists two tools of this name; the later one is left out",
				"Tell the server's author.", "other", t.Name)
		}
		if problem != nil {
			c.Rejected = append(c.Rejected, problem)
			continue
		}
		seen[t.Name] = true
		c.Tools = append(c.Tools, tool)
	}
	return c
}

func checkTool(t Listed) (Tool, *fault.Error) {
	if why := badName(t.Name); why != "" {
		return Tool{}, fault.New(fault.FieldInvalid, strconv.QuoteToASCII(cut(t.Name, 80)), "the tool's name "+why+"; it is left out",
			"Tell the server's author.")
	}
	if len(t.Definition) > MaxDefinition {
		return Tool{}, fault.Limit(fault.LimitExceeded, "tool_definition_max_bytes", MaxDefinition, int64(len(t.Definition)),
			"The tool "+t.Name+" is left out; tell the server's author.")
	}
	if err := rawjson.CheckObject(t.Definition, rawjson.Limits{}); err != nil {
		return Tool{}, fault.New(fault.JSONInvalid, t.Name, "the definition of "+t.Name+" can be read in two ways or not at all: "+err.Error()+"; it is left out",
			"Tell the server's author.")
	}
	semantic, err := fingerprint.Semantic(t.Definition)
	if err != nil {
		return Tool{}, fault.New(fault.JSONInvalid, t.Name, "the definition of "+t.Name+" has no canonical form: "+err.Error(), "Tell the server's author.")
	}
	return Tool{
		Name: t.Name, Definition: t.Definition, Wire: fingerprint.Wire(t.Definition), Semantic: semantic,
		Destructive: hint(t.Definition, "destructiveHint"), ReadOnly: hint(t.Definition, "readOnlyHint"),
	}, nil
}

// badName says what makes a name unfit to stand in a canonical id, on a card and in a log.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > MaxToolName:
		return fmt.Sprintf("has %d bytes, tool_name_max_bytes is %d", len(name), MaxToolName)
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	}
	for _, r := range name {
		if unicode.IsSpace(r) || !unicode.IsGraphic(r) {
			return fmt.Sprintf("holds the character U+%04X, which can't be seen", r)
		}
	}
	return ""
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// hint reads a boolean of a definition's annotations; anything but a plain true is false.
func hint(definition []byte, name string) bool {
	annotations, ok, err := rawjson.Get(definition, "annotations")
	if err != nil || !ok || rawjson.TypeOf(annotations) != rawjson.Object {
		return false
	}
	raw, ok, err := rawjson.Get(annotations, name)
	if err != nil || !ok {
		return false
	}
	value, err := rawjson.Boolean(raw)
	return err == nil && value
}

func hash(l Listing) string {
	h := sha256.New()
	part := func(b []byte) {
		fmt.Fprintf(h, "%d:", len(b))
		h.Write(b)
	}
	part([]byte(l.Digest))
	part([]byte(l.ServerVersion))
	for _, t := range l.Tools {
		part([]byte(t.Name))
		part(t.Definition)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Hash is over everything that is remembered of the catalogue.
func (c *Catalogue) Hash() string { return c.hash }
