package mcpserver

import (
	"errors"
	"strconv"

	"github.com/writ-dev/writ/internal/rawjson"
)

// JSON-RPC error codes.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// The revisions that are spoken, newest first. The newest of the sessions' era answers an unknown one.
const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
	metaVersion   = "io.modelcontextprotocol/protocolVersion" // in _meta of every request of the modern era
)

var legacyVersions = map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": true, legacyVersion: true}

// message is a JSON-RPC message, its parts as they were written.
type message struct {
	id     []byte // nil: a notification
	method string
	params []byte // nil: none
}

func (m message) idOrNull() []byte {
	if m.id == nil {
		return []byte("null")
	}
	return m.id
}

func parse(b []byte) (m message, err error) {
	if err := rawjson.CheckObject(b, rawjson.Limits{MaxBytes: lineMaxBytes}); err != nil {
		return m, err
	}
	for member, err := range rawjson.Members(b) {
		if err != nil {
			return m, err
		}
		switch member.Name {
		case "id":
			if len(member.Value) > 256 || member.Value[0] == '{' || member.Value[0] == '[' {
				return m, errors.New("the id is no string or number")
			}
			if string(member.Value) != "null" {
				m.id = member.Value
			}
		case "method":
			if m.method, err = rawjson.String(member.Value); err != nil {
				return m, errors.New("the method is no string")
			}
		case "params":
			m.params = member.Value
		}
	}
	if m.params == nil {
		m.params = []byte("{}")
	}
	return m, nil
}

func resultFrame(id, result []byte) []byte {
	b := make([]byte, 0, len(id)+len(result)+48)
	b = append(append(b, `{"jsonrpc":"2.0","id":`...), id...)
	return append(append(append(b, `,"result":`...), result...), '}')
}

func errorFrame(id []byte, code int, text string) []byte {
	b := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	return append(rawjson.AppendString(append(b, `,"message":`...), text), "}}"...)
}

func progressFrame(token []byte, progress, total float64, text string) []byte {
	b := append(append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), token...), `,"progress":`...)
	b = strconv.AppendFloat(b, progress, 'f', -1, 64)
	if total > 0 {
		b = strconv.AppendFloat(append(b, `,"total":`...), total, 'f', -1, 64)
	}
	if text != "" {
		b = rawjson.AppendString(append(b, `,"message":`...), text)
	}
	return append(b, "}}"...)
}

// textResult is a tool's result of our own words.
func textResult(text string, isError bool) []byte {
	b := rawjson.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
	b = append(b, `}],"isError":`...)
	return append(strconv.AppendBool(b, isError), '}')
}

// member is the value of one member of an object that was checked; nil where there is none.
func member(b []byte, name string) []byte {
	raw, ok, err := rawjson.Get(b, name)
	if err != nil || !ok {
		return nil
	}
	return raw
}

const (
	capabilities = `{"tools":{"listChanged":true}}`
	instructions = `"Tools go through Writ: a person may be asked before a call runs. A pending call says so; repeat the same call to go on waiting for it."`
)

func (s *server) initialize(params []byte) []byte {
	version := legacyVersion
	if asked, err := rawjson.String(member(params, "protocolVersion")); err == nil && legacyVersions[asked] {
		version = asked
	}
	return []byte(`{"protocolVersion":"` + version + `","capabilities":` + capabilities + `,"serverInfo":` + s.info() + `,"instructions":` + instructions + `}`)
}

// info is serverInfo.
func (s *server) info() string {
	return `{"name":"writ","title":"Writ","version":` + string(rawjson.AppendString(nil, s.Version)) + `}`
}

func (s *server) discovery() []byte {
	return []byte(`{"resultType":"complete","supportedVersions":["` + modernVersion + `"],"capabilities":` + capabilities +
		`,"serverInfo":` + s.info() + `,"instructions":` + instructions + `,"ttlMs":0,"cacheScope":"private"}`)
}
