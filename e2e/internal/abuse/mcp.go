package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// serve is the least MCP server that can be: one tool, one call at a time.
func serve(t target) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				ProtocolVersion string `json:"protocolVersion"`
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		answer := `"error":{"code":-32601,"message":"no such method"}`
		switch m.Method {
		case "initialize":
			answer = `"result":{"protocolVersion":` + quote(m.Params.ProtocolVersion) + `,"capabilities":{"tools":{}},"serverInfo":{"name":"abuse","version":"1"}}`
		case "ping":
			answer = `"result":{}`
		case "tools/list":
			answer = `"result":{"tools":[{"name":"attempt","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			answer = `"result":{"content":[{"type":"text","text":` + quote(string(t.try())) + `}]}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID, answer)
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}
