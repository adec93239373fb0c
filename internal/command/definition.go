package command

import (
	"crypto/sha256"
	"encoding/hex"
)

// ToolName is the canonical name of the tool.
const ToolName = "run_command"

// Definition is the tool's definition as an MCP client sees it. It is served
// byte for byte as it stands here, and its fingerprint is over these bytes: a
// change of one character is a changed tool.
const Definition = `{"name":"run_command","title":"Run a command","description":"Runs a program in the workspace and returns its exit status and output. Give either command (a line for /bin/sh -c) or argv (a program and its arguments, no shell). It runs sandboxed, without network unless network is \"open\", and is ended after timeout_seconds together with everything that it started.","inputSchema":{"type":"object","properties":{"command":{"type":"string","minLength":1,"description":"A shell line, run by /bin/sh -c."},"argv":{"type":"array","items":{"type":"string"},"minItems":1,"description":"A program and its arguments, run without a shell."},"cwd":{"type":"string","description":"Folder to run in: relative to the workspace, or absolute inside it. Default: the workspace."},"env":{"type":"object","propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"},"additionalProperties":{"type":"string"},"description":"Environment variables, added to a minimal environment."},"stdin":{"type":"string","description":"Text for standard input."},"timeout_seconds":{"type":"number","minimum":1,"maximum":3600,"default":120,"description":"Seconds until the command is ended."},"network":{"type":"string","enum":["none","open"],"default":"none","description":"Network access. \"open\" needs its own permission."},"isolation":{"type":"string","enum":["isolated","isolated-soft-caps","restricted","guarded","host"],"default":"isolated-soft-caps","description":"The least isolation to run with. \"host\" is none and needs a person's approval every time."}},"oneOf":[{"required":["command"]},{"required":["argv"]}],"additionalProperties":false},"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}`

// Provider is the canonical name of what builtin tools' calls go to.
const Provider = "builtin"

// ProviderDigest is the provider digest of the builtin tool: lower-case hex
// SHA-256 of "writ.builtin/1\n" and the definition. The registry freezes it
// into turns and the executor compares it, so that a release with another
// definition is another provider.
func ProviderDigest() string {
	sum := sha256.Sum256([]byte("writ.builtin/1\n" + Definition))
	return hex.EncodeToString(sum[:])
}
