// Package wire defines the frames that travel between the host and the guest,
// the Python program that runs inside a sandbox. It knows nothing of engines
// or of execution: it encodes, decodes and bounds.
//
// # Channels
//
// A guest has two channels, carried by the three standard streams of its
// container:
//
//   - control: the container's standard input (host to guest) and standard
//     output (guest to host). The Python interpreter itself reads and writes
//     them.
//   - output: the container's standard error (guest to host). A tiny second
//     process, the container's init, drains what user code and its children
//     write to descriptors 1 and 2 and forwards it here, so that a full pipe
//     never blocks the interpreter that also has to speak frames.
//
// Where an engine has no processes, the interpreter is alone: sys.stdout and
// sys.stderr write output frames to descriptor 2 themselves, and a nonce follows
// them there before "done" is sent.
//
// An execution that has written nothing to a descriptor needs no nonce. What it
// prints last is then in "done".
//
// # Control frames
//
// A control frame is an unsigned 32-bit big-endian length N followed by N
// bytes: one JSON object in UTF-8 whose first member is the string "type". N is
// at least 2 and at most [MaxToGuest] or [MaxFromGuest].
//
// Host to guest:
//
//	exec      {"type":"exec","id":1,"nonce":"…","code":"…","filename":"<cell 1>",
//	           "script":true,"grants":["fs"],"define":[Server…],
//	           "discovered":[{"name":"fs","alias":"fs","description":"…"}],
//	           "reseed":"9f…"}
//	          {"type":"exec","id":2,"nonce":"…","code":"","task":"take_out"}
//	          {"type":"exec","id":3,"nonce":"…","code":"…","stdin":true}
//	          {"type":"exec","id":4,"nonce":"…","code":"…","html":true}
//	reply     {"type":"reply","id":7,"ok":true,"result":ANY}
//	          {"type":"reply","id":7,"ok":false,"error":{"kind":"tool","message":"…"}}
//	shutdown  {"type":"shutdown"}
//
// Guest to host:
//
//	ready     {"type":"ready","protocol":1,"runtime":"Python 3.11.2"}
//	call      {"type":"call","id":7,"run":1,"method":"call_tool","params":{…}}
//	cancel    {"type":"cancel","id":7}: no caller waits for that call's reply
//	behind    {"type":"behind","run":1,"calls":12}: so many calls wait in the guest,
//	          which has a thousand under way
//	done      {"type":"done","id":1,"status":"ok","exitCode":0,
//	           "artifacts":[{"path":"a.png","size":123,"about":"its title"}],
//	           "background":{"threads":1,"tasks":2,"children":0}}
//	          {"type":"done","id":2,"status":"error","exitCode":1,
//	           "error":{"type":"ValueError","message":"the first line"}}
//	          {"type":"done","id":3,"status":"ok","exitCode":0,"drained":true,"stdout":"2\n"}
//	          status: ok, error (an uncaught exception), exit (SystemExit),
//	          interrupted (the host's SIGINT ended it)
//
// A server that is named in "grants" has been defined in this or an earlier
// exec of the same guest; defining it again replaces the definition.
// "discovered", when it is there, replaces what the guest knew of the servers
// that exist. "reseed" is for a guest that was restored from a snapshot of which
// there are other copies: it makes what is random in it its own, before anything
// else. "packages" names archives of packages that an earlier sandbox of the session
// had: the guest adds them before it runs the code. "stdin" says that the code has a standard input. It is not sent: the guest
// asks for each piece when code reads, by calls of [MethodStdin], so that the host
// reads nothing that is not wanted. Optional members are left out when they are empty. The methods of
// a call and the kinds of an error are the constants of this package.
//
// The guest sends "ready" once, before anything else. The host may send "exec"
// without waiting for it. The host has at most one "exec" outstanding; calls and
// replies interleave freely and replies come in any order. A call whose "run"
// is not the outstanding execution is refused: grants are per execution.
//
// # Output frames
//
// An output frame is an unsigned 32-bit big-endian length N, then one byte of
// kind, then N-1 bytes of payload. N is at least 1 and at most [MaxOutput].
//
//	'o'  bytes written to standard output
//	'e'  bytes written to standard error
//	'n'  a nonce: everything written before the execution that carried it
//	     ended has been sent. None comes if "done" says "drained"
//	'x'  the interpreter has ended; payload {"code":3} or {"signal":9}
//
// # Trust
//
// The guest shares its sandbox with hostile code. Every frame from it may be
// forged, truncated, oversized, late or repeated. A decoder error ends that
// guest's conversation and nothing else.
package wire
