package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
)

// mountEntry is one line of /proc/PID/mountinfo.
type mountEntry struct {
	Dev     string // major:minor
	Root    string // folder of the file system that is mounted
	Point   string
	Options string
	FSType  string
}

func (m mountEntry) readOnly() bool {
	for o := range strings.SplitSeq(m.Options, ",") {
		if o == "ro" {
			return true
		}
	}
	return false
}

func readMountinfo(file string) ([]mountEntry, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMountinfo(f)
}

func parseMountinfo(r io.Reader) ([]mountEntry, error) {
	var out []mountEntry
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 1 {
			return nil, fmt.Errorf("mountinfo: unreadable line %q", sc.Text())
		}
		out = append(out, mountEntry{Dev: l[2], Root: unescapeMount(l[3]), Point: unescapeMount(l[4]),
			Options: l[5], FSType: r[0]})
	}
	return out, sc.Err()
}

// unescapeMount undoes the kernel's octal escapes (\040 for a space).
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// within returns the part of p below dir ("" for dir itself).
func within(p, dir string) (string, bool) {
	if p == dir {
		return "", true
	}
	if dir == "/" {
		return p[1:], true
	}
	return strings.CutPrefix(p, dir+"/")
}

// aliases lists every path under which the file at p can be seen through the
// given mounts, p first: a bind mount elsewhere shows the same file again.
func aliases(mounts []mountEntry, p string) []string {
	out := []string{p}
	holder := -1
	for i, m := range mounts { // the last of the longest mount points is on top
		if _, ok := within(p, m.Point); ok && (holder < 0 || len(m.Point) >= len(mounts[holder].Point)) {
			holder = i
		}
	}
	if holder < 0 {
		return out
	}
	rel, _ := within(p, mounts[holder].Point)
	inFS := path.Join(mounts[holder].Root, rel)
	for _, m := range mounts {
		if m.Dev != mounts[holder].Dev {
			continue
		}
		var alias string
		if rest, ok := within(inFS, m.Root); ok {
			alias = path.Join(m.Point, rest)
		} else if _, ok := within(m.Root, inFS); ok {
			alias = m.Point
		}
		if alias != "" && !contains(out, alias) {
			out = append(out, alias)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
