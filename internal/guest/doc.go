// Package guest holds both ends of the conversation with a sandbox: the Python
// program that runs inside (the directory python, embedded here and installed
// by engines) and [Conn], the host's side of its channel. It knows no engine.
//
// # Inside
//
// The container's first process, init, forks once. The child is the
// interpreter: it reads and writes control frames itself, so that a tool call
// passes no other process. The parent stays small: it owns the container's
// standard error, drains what the interpreter and its children write to
// descriptors 1 and 2, reaps orphans, passes signals on, and reports the
// interpreter's death.
//
// The end of an execution is told twice: the interpreter sends a done frame,
// and hands init a nonce that init sends after everything that was written
// before. [Execution.Done] waits for both.
//
// # Trust
//
// Nothing that arrives from the guest is believed beyond its own execution. A
// forged done frame or nonce ends the execution of the code that forged it; a
// malformed frame ends the guest's conversation.
package guest
