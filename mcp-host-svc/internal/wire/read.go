package wire

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"

	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
)

// maxPartial bounds a message that is spread over several lines.
const maxPartial = 1 << 20

var byteOrderMark = []byte("\xef\xbb\xbf")

func (c *Conn) read() {
	defer c.end()
	lines := newLineReader(c.r, c.opt.MaxLine)
	var part partial
	for {
		l, err := lines.next()
		if err != nil {
			return
		}
		if l.oversize() {
			c.oversize(l)
			continue
		}
		data := bytes.TrimSpace(bytes.TrimPrefix(l.data, byteOrderMark))
		if len(data) > 0 {
			c.line(data, &part)
		}
	}
}

// line takes one line that is not blank.
func (c *Conn) line(data []byte, part *partial) {
	if jsonview.Valid(data) && (part.empty() || jsonview.Kind(data) == '{') {
		// A whole message always wins over the beginning of one that waits.
		c.dropPartial(part)
		c.value(data)
		return
	}
	if part.empty() && data[0] != '{' && data[0] != '[' {
		c.noise(data)
		return
	}
	if part.empty() && c.several(data) {
		return
	}
	if len(part.buf)+len(data) > maxPartial {
		c.dropPartial(part)
		c.noise(data)
		return
	}
	if part.add(data) {
		whole := append([]byte(nil), part.buf...)
		part.reset()
		if jsonview.Valid(whole) {
			c.value(whole)
		} else {
			c.noise(whole)
		}
	}
}

// several takes a line that begins with one or more whole messages and goes on
// with something else.
func (c *Conn) several(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	var at int64
	for {
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			break
		}
		at = dec.InputOffset()
		c.value(raw)
	}
	if rest := bytes.TrimSpace(data[at:]); at > 0 && len(rest) > 0 {
		c.noise(rest)
	}
	return at > 0
}

func (c *Conn) dropPartial(part *partial) {
	if !part.empty() {
		c.noise(part.buf)
		part.reset()
	}
}

// value takes one JSON value: a message, a batch of them, or noise.
func (c *Conn) value(v []byte) {
	switch jsonview.Kind(v) {
	case '{':
		c.message(v)
	case '[':
		for e := range jsonview.Elements(v) {
			if jsonview.Kind(e) == '{' {
				c.message(e)
			} else {
				c.noise(e)
			}
		}
	default:
		c.noise(v)
	}
}

func (c *Conn) message(m []byte) {
	var id, method, result, failure, params []byte
	tagged := false
	for name, v := range jsonview.Members(m) {
		switch name {
		case "jsonrpc":
			tagged = true
		case "id":
			id = firstOf(id, v)
		case "method":
			method = firstOf(method, v)
		case "result":
			result = firstOf(result, v)
		case "error":
			failure = firstOf(failure, v)
		case "params":
			params = firstOf(params, v)
		}
	}
	isNull := len(id) == 0 || string(id) == "null"
	switch {
	case method != nil && isNull:
		name, _ := jsonview.String(method)
		c.notification(name, params, m, tagged)
	case method != nil:
		c.toSDK(m, tagged, id)
	case !isNull && (result != nil || failure != nil):
		c.response(id, result, failure, m, tagged)
	default:
		c.noise(m)
	}
}

func firstOf(have, v []byte) []byte {
	if have != nil {
		return have
	}
	return v
}

func (c *Conn) response(id, result, failure, m []byte, tagged bool) {
	n, err := strconv.ParseInt(string(bytes.Trim(id, `"`)), 10, 64)
	if err != nil || n <= firstID {
		if !c.toSDK(m, tagged, nil) {
			c.stray()
		}
		return
	}
	p := c.take(n)
	if p == nil {
		c.stray()
		return
	}
	if failure != nil && string(failure) != "null" {
		p.answer <- answer{err: rpcError(failure)}
		return
	}
	p.answer <- answer{result: result}
}

func (c *Conn) notification(name string, params, m []byte, tagged bool) {
	switch name {
	case "notifications/progress":
		token, ok := jsonview.Get(params, "progressToken")
		if !ok {
			return
		}
		n, err := strconv.ParseInt(string(bytes.Trim(token, `"`)), 10, 64)
		if err != nil {
			return
		}
		c.mu.Lock()
		p := c.pending[n]
		c.mu.Unlock()
		if p != nil && p.progress != nil {
			p.progress(params)
		}
	case "notifications/cancelled":
		c.toSDK(m, tagged, nil)
	default:
		if c.opt.OnNotification != nil {
			c.opt.OnNotification(name, params)
		}
	}
}

var (
	idAtHead = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d{1,18})"?\s*[,}]`)
	idAtTail = regexp.MustCompile(`,\s*"id"\s*:\s*"?(\d{1,18})"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

// oversize fails the request that an oversize line answers. The id stands near
// the beginning or the end of what servers write; where it can't be found and
// only one request is open, it is that one.
func (c *Conn) oversize(l line) {
	fail := answer{err: &TooLongError{Limit: int64(c.opt.MaxLine), Got: l.size}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.OversizeLines++
	id := int64(0)
	if m := idAtTail.FindSubmatch(l.tail); m != nil {
		id, _ = strconv.ParseInt(string(m[1]), 10, 64)
	}
	if m := idAtHead.FindSubmatch(l.head); m != nil && c.pending[id] == nil {
		id, _ = strconv.ParseInt(string(m[1]), 10, 64)
	}
	if c.pending[id] == nil && len(c.pending) == 1 {
		for only := range c.pending {
			id = only
		}
	}
	if p := c.pending[id]; p != nil {
		delete(c.pending, id)
		p.answer <- fail
	}
}

func (c *Conn) noise(b []byte) {
	c.mu.Lock()
	c.stats.NoiseLines++
	c.stats.LastNoise = string(bytes.ToValidUTF8(first(b, 200), []byte("\uFFFD")))
	c.mu.Unlock()
	if c.opt.OnNoise != nil {
		c.opt.OnNoise(b)
	}
}

func (c *Conn) stray() {
	c.mu.Lock()
	c.stats.Strays++
	c.mu.Unlock()
}

// end fails what is open once no answer can come any more.
func (c *Conn) end() {
	c.mu.Lock()
	c.ended = true
	open := c.pending
	c.pending = map[int64]*pending{}
	c.mu.Unlock()
	for _, p := range open {
		p.answer <- answer{err: &ClosedError{}}
	}
	close(c.done)
}
