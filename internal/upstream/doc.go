// Package upstream is the client of a user's MCP servers: it starts
// them on first use, keeps them warm, lists and calls their tools, and ends
// them.
//
// Results and schemas are handed out as the bytes that the server sent. The
// parts are in packages of their own: jsonrpc (the wire), child (the
// processes), remote (HTTP), definitions (what the user has), secret (what
// definitions refer to). Here is what joins them: the handshake of both eras of
// the protocol, the cache of tools, and the Pool, which owns everything that
// runs.
//
// # Two eras
//
// Servers up to revision 2025-11-25 want a handshake (initialize); since
// 2026-07-28 there is none, and every request says which version it speaks.
//
// With a program we begin with the handshake, because many servers of the first
// era exit or fall silent on anything else. When a server answers that it does
// not know initialize, or not our version, it is asked with server/discover: on
// the same connection, or, if it has ended itself after its answer, in a fresh
// process. Silence is answered with server/discover too, once, when the time
// for the start is over.
//
// Over HTTP a question harms no server: there we begin with server/discover,
// which has a deadline of its own, then try the handshake, and where a server
// refuses messages altogether, HTTP with server-sent events.
//
// What worked is remembered for the next start, also of another process.
//
// # Transports
//
// A Server speaks through a transport: a program's standard input and output
// (program), or a connection of package remote. A connection over streamable
// HTTP does not end when the network does; calls fail one by one, and what was a
// session is begun anew.
//
// # Life cycle
//
// A Pool owns the servers; each client has a Manager, which is its definitions.
// Servers that two Managers would start in the same way are one: see identity. So
// nothing of a client reaches a server that another client uses, unless it is equal
// in both. What a server prints besides its answers is for the one client that calls
// it, or for none: see caller.
//
// A server is started on first use and shared; where the configuration says so,
// it has several processes or connections, and a call goes to the least busy.
// One that ends by itself is started again on the next use, after pauses that
// grow when it does not stay up. One that let a call time out and does not
// answer a ping either is ended.
//
// # Questions of servers
//
// While a server works on a call, it may ask the user or the agent's client: what the
// settings let it ask (Options.May), and the call's Host takes. Servers of the first
// era send requests. Over HTTP these come on the stream of their call; else they may
// be about any call in flight, and are refused unless all of those are one client's.
// Servers of the second era answer the call with what they need, and get it with the
// call's repetition. The time limit of a call does not run while its Host is asked.
//
// # Trust
//
// Servers are the user's choice and run as the user, outside the sandbox, but
// what they send is bounded and checked. A server that misbehaves or dies harms
// the calls made to it and nothing else. Calls come from untrusted code:
// arguments are checked to be one JSON object before they are sent.
package upstream
