package preview

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"strings"

	"github.com/writ-dev/writ/internal/rawjson"
)

// Preview is what is shown.
type Preview struct {
	Title     string
	Command   string
	Arguments []Argument
	Complete  bool
	Warnings  []string
	SHA256    string
}

// Argument is one argument, escaped.
type Argument struct{ Name, Value string }

// Input is what a preview is made of.
type Input struct {
	Provider, Tool string // canonical
	Command        string // the exact line or argument vector; "" where the tool runs none
	Arguments      []byte // a checked JSON object
	MaxBytes       int    // of the whole preview; what is over it is cut, and then the preview is not complete
	MaxArguments   int
}

// Build makes the preview.
func Build(in Input) Preview {
	b := &builder{room: in.MaxBytes, p: Preview{Complete: true}}
	b.p.Title = b.text(title(in), false)
	if in.Command != "" {
		b.p.Command = b.text(in.Command, true)
	}
	for m, err := range rawjson.Members(in.Arguments) {
		if err != nil || len(b.p.Arguments) >= in.MaxArguments || b.room <= 0 {
			b.p.Complete = false
			break
		}
		value := string(m.Value)
		if rawjson.TypeOf(m.Value) == rawjson.Str {
			if s, err := rawjson.String(m.Value); err == nil {
				value = s
			}
		}
		b.p.Arguments = append(b.p.Arguments, Argument{Name: b.text(m.Name, false), Value: b.text(value, true)})
	}
	b.p.Warnings = b.found
	b.p.SHA256 = digest(b.p)
	return b.p
}

func title(in Input) string {
	server, isServer := strings.CutPrefix(in.Provider, "mcp.")
	if !isServer {
		return in.Tool
	}
	return server + " · " + strings.TrimPrefix(in.Tool, in.Provider+".")
}

type builder struct {
	p     Preview
	room  int
	found warnings
}

func (b *builder) text(s string, lines bool) string {
	cut := len(s) > b.room
	if cut {
		s = strings.ToValidUTF8(s[:max(b.room, 0)], "")
		b.p.Complete = false
	}
	out, found := Escape(s, lines)
	b.found.add(found...)
	b.room -= len(out)
	if cut {
		out += "…"
	}
	return out
}

// digest is over every text that is shown, each with its length before it.
func digest(p Preview) string {
	h := sha256.New()
	text := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		io.WriteString(h, s)
	}
	text("writ-preview-v1")
	text(p.Title)
	text(p.Command)
	for _, a := range p.Arguments {
		text(a.Name)
		text(a.Value)
	}
	text("warnings")
	for _, w := range p.Warnings {
		text(w)
	}
	if !p.Complete {
		text("cut")
	}
	return hex.EncodeToString(h.Sum(nil))
}
