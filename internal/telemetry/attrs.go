package telemetry

import "go.opentelemetry.io/otel/attribute"

// This file is the one place where span names and attribute keys are written down; docs/telemetry.md explains them.
//
// rpc.*, error.* and network.* are OpenTelemetry semantic conventions v1.43.0. mcp.* and gen_ai.* left that package
// after v1.41.0 and live in open-telemetry/semantic-conventions-genai (docs/gen-ai/mcp.md at commit 0393513, status
// Development). writ.* are ours.

// Span names. RPC spans are named "package.Service/Method".
const (
	SpanConduct     = "conduct call"   // gateway: one call from the request to its outcome
	SpanAwaitPerson = "await person"   // permission: from the card's creation to its answer
	SpanDecide      = "decide"         // permission: mode x class x disposition x policy
	SpanMint        = "mint writ"      // permission: the last evaluation and the signature
	SpanVerify      = "verify writ"    // executors: before the claim
	SpanDiscover    = "discover tools" // registry: the listing of one connector
	SpanStart       = "start session"  // mcp-host: process, handshake, listing
	SpanQueue       = "await session"  // mcp-host: the one-folder queue
	SpanRun         = "run command"    // exec: from the launch to the end of the last process
	SpanCommit      = "commit"         // evidence: one durable commit on a call's path
)

// SpanToolsCall is the convention's name for an MCP tool call, on both sides.
func SpanToolsCall(tool string) string { return "tools/call " + tool }

// SpanExecuteTool is the convention's name for a tool call outside of MCP.
func SpanExecuteTool(tool string) string { return "execute_tool " + tool }

// Semantic conventions for RPC, errors and networks.
const (
	RPCSystemName         = attribute.Key("rpc.system.name")          // "grpc", "jsonrpc"
	RPCMethod             = attribute.Key("rpc.method")               // "writ.registry.v1.TurnService/OpenTurn"
	RPCResponseStatusCode = attribute.Key("rpc.response.status_code") // "OK", "NOT_FOUND"; for MCP the JSON-RPC code
	ErrorType             = attribute.Key("error.type")               // our reason, or "tool_error" for isError
	NetworkTransport      = attribute.Key("network.transport")        // "pipe" for stdio, "tcp", "inproc" inside one process
	NetworkProtocolName   = attribute.Key("network.protocol.name")
	ServerAddress         = attribute.Key("server.address")
	ServerPort            = attribute.Key("server.port")
)

// ToolError is the value of ErrorType for a result with isError.
const ToolError = "tool_error"

// Semantic conventions for MCP and GenAI.
const (
	MCPMethodName         = attribute.Key("mcp.method.name") // "tools/call"
	MCPSessionID          = attribute.Key("mcp.session.id")
	MCPProtocolVersion    = attribute.Key("mcp.protocol.version")
	MCPResourceURI        = attribute.Key("mcp.resource.uri")
	JSONRPCRequestID      = attribute.Key("jsonrpc.request.id")
	JSONRPCProtocolVerson = attribute.Key("jsonrpc.protocol.version") // only where it is not 2.0
	GenAIOperationName    = attribute.Key("gen_ai.operation.name")    // "execute_tool"
	GenAIToolName         = attribute.Key("gen_ai.tool.name")
	GenAIToolType         = attribute.Key("gen_ai.tool.type")
	GenAIToolCallID       = attribute.Key("gen_ai.tool.call.id")
)

// OperationExecuteTool is the value of GenAIOperationName for a tool call.
const OperationExecuteTool = "execute_tool"

// Ours. Values are ids, names, hashes, enum words and sizes: never arguments, results, tokens or paths.
const (
	Namespace      = attribute.Key("writ.namespace")
	Principal      = attribute.Key("writ.principal")
	PrincipalKind  = attribute.Key("writ.principal.kind")
	AssertedBy     = attribute.Key("writ.asserted_by")
	Agent          = attribute.Key("writ.agent")
	Conversation   = attribute.Key("writ.conversation")
	Turn           = attribute.Key("writ.turn")
	Call           = attribute.Key("writ.call") // "turns/{turn}/calls/{call}"
	Tool           = attribute.Key("writ.tool") // canonical id
	Lane           = attribute.Key("writ.lane")
	Class          = attribute.Key("writ.class")
	Mode           = attribute.Key("writ.mode")
	Disposition    = attribute.Key("writ.disposition")
	Provider       = attribute.Key("writ.provider")
	ProviderDigest = attribute.Key("writ.provider_digest")
	Fingerprint    = attribute.Key("writ.fingerprint") // wire
	Connector      = attribute.Key("writ.connector")
	Session        = attribute.Key("writ.session")
	Run            = attribute.Key("writ.run")
	Card           = attribute.Key("writ.card")
	Grant          = attribute.Key("writ.grant")
	Decision       = attribute.Key("writ.decision") // id
	DecisionResult = attribute.Key("writ.decision.result")
	Cause          = attribute.Key("writ.cause") // mode, disposition, grant, policy, card
	WritID         = attribute.Key("writ.writ_id")
	Claim          = attribute.Key("writ.claim")
	Receipt        = attribute.Key("writ.receipt")
	Outcome        = attribute.Key("writ.outcome")
	Reason         = attribute.Key("writ.reason") // ErrorInfo.reason
	Isolation      = attribute.Key("writ.isolation")
	Network        = attribute.Key("writ.network")
	Credential     = attribute.Key("writ.credential") // what was presented upstream, never the secret
	ArgumentsSize  = attribute.Key("writ.arguments.size")
	ResultSize     = attribute.Key("writ.result.size")
	ExitCode       = attribute.Key("writ.exit_code")
	Survivors      = attribute.Key("writ.survivors")
	BatchSize      = attribute.Key("writ.batch.size")
)
