// Package ui prints for people: calm, aligned, one idea a line, 80 columns, colour only for state and never needed to
// understand. With --json the contract's own messages are printed instead.
package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Width is the number of columns that hold everything that matters.
const Width = 80

// Printer prints to one output.
type Printer struct {
	Out   io.Writer
	Err   io.Writer
	JSON  bool
	color bool
}

// New prints to out; colour only where out is a terminal and NO_COLOR is unset.
func New(out, err io.Writer, json bool) *Printer {
	f, ok := out.(*os.File)
	_, none := os.LookupEnv("NO_COLOR")
	return &Printer{Out: out, Err: err, JSON: json, color: ok && !none && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))}
}

// Line prints one line.
func (p *Printer) Line(format string, args ...any) { fmt.Fprintf(p.Out, format+"\n", args...) }

// Note prints one line to standard error, where it does not disturb a pipe.
func (p *Printer) Note(format string, args ...any) { fmt.Fprintf(p.Err, format+"\n", args...) }

// Message prints a contract's message as one line of JSON.
func (p *Printer) Message(m proto.Message) error {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Out, "%s\n", b)
	return err
}

// Good, Bad and Wait colour a word by state.
func (p *Printer) Good(s string) string { return p.paint("32", s) }

// Bad colours what failed.
func (p *Printer) Bad(s string) string { return p.paint("31", s) }

// Wait colours what waits.
func (p *Printer) Wait(s string) string { return p.paint("33", s) }

// Dim colours what matters less.
func (p *Printer) Dim(s string) string { return p.paint("2", s) }

func (p *Printer) paint(code, s string) string {
	if !p.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Table prints rows under headers, columns aligned, the last one free.
func (p *Printer) Table(headers []string, rows [][]string) {
	widths := make([]int, len(headers))
	for i, h := range headers {
		widths[i] = columns(h)
	}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], columns(cell))
		}
	}
	print := func(row []string) {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-columns(cell)+2))
			}
		}
		fmt.Fprintln(p.Out, strings.TrimRight(b.String(), " "))
	}
	print(headers)
	for _, row := range rows {
		print(row)
	}
}

// Box draws a frame of Width columns around lines. Lines that are too long are folded, never cut.
func (p *Printer) Box(left, right string, lines []string, foot string) {
	inner := Width - 4
	fmt.Fprintf(p.Out, "┌ %s %s %s ┐\n", left, strings.Repeat(" ", max(1, inner-2-columns(left)-columns(right))), right)
	for _, l := range lines {
		for _, part := range Fold(l, inner) {
			fmt.Fprintf(p.Out, "│ %s%s │\n", part, strings.Repeat(" ", max(0, inner-columns(part))))
		}
	}
	fmt.Fprintf(p.Out, "└ %s %s┘", foot, strings.Repeat("─", max(1, inner-columns(foot))))
}

// Fold breaks a line into pieces of at most width columns.
func Fold(s string, width int) (out []string) {
	for columns(s) > width {
		cut, n := 0, 0
		for i, r := range s {
			if n == width {
				break
			}
			n++
			cut = i + utf8.RuneLen(r)
		}
		if at := strings.LastIndex(s[:cut], " "); at > width/2 {
			cut = at + 1
		}
		out, s = append(out, strings.TrimRight(s[:cut], " ")), s[cut:]
	}
	return append(out, s)
}

// Safe makes foreign text printable: control, bidirectional and invisible characters become visible escapes, so that
// nothing on the screen can be moved, hidden or coloured by it. New lines stay when `multi` is true.
func Safe(s string, multi bool) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, "\\x%02x", s[i])
		case r == '\n' && multi, r == '\t' && multi:
			b.WriteRune(r)
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r >= 0xE0000 && r <= 0xE0FFF, r == 0x2028, r == 0x2029, unicode.Is(unicode.Variation_Selector, r):
			fmt.Fprintf(&b, "\\u{%x}", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Short cuts an identifier or digest for reading: 9c41…e0.
func Short(s string) string {
	if len(s) <= 12 {
		return s
	}
	return s[:4] + "…" + s[len(s)-4:]
}

func columns(s string) int {
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == 0x1b:
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}
