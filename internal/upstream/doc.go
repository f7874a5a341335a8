// Package upstream is the client of the MCP servers that a user has: it starts
// them on first use, keeps them warm, lists and calls their tools, and ends
// them.
//
// Results and schemas are handed out as the bytes that the server sent. The
// parts are in packages of their own: jsonrpc (the wire), child (the
// processes), definitions (what the user has). Here is what joins them: the
// handshake of both eras of the protocol, the cache of tools, and the Manager,
// which owns everything that runs.
//
// # Two eras
//
// Servers up to revision 2025-11-25 want a handshake (initialize); since
// 2026-07-28 there is none, and every request says which version it speaks. We
// begin with the handshake, because many servers of the first era exit or fall
// silent on anything else. When a server answers that it does not know
// initialize, or not our version, it is asked with server/discover: on the same
// connection, or, if it has ended itself after its answer, in a fresh process.
// Silence is answered with server/discover too, once, when the time for the
// start is over. What worked is remembered for the next start.
//
// # Where further transports belong
//
// A Server speaks through a jsonrpc.Conn to a child.Process. A server reached
// over HTTP will need what those two offer together: Call, Notify, Done, Err,
// an end, and a diagnosis for errors.
//
// # Trust
//
// Servers are the user's choice and run as the user, outside the sandbox, but
// what they send is bounded and checked. A server that misbehaves or dies harms
// the calls made to it and nothing else. Calls come from untrusted code:
// arguments are checked to be one JSON object before they are sent.
package upstream
