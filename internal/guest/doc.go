// Package guest is the host's side of the conversation with the program in a
// sandbox, the guest: [Conn] speaks frames (package wire) over the sandbox's
// streams, one [Execution] at a time. It knows no engine and no language.
//
// The end of an execution arrives twice: as a done frame, and as a nonce that the
// guest sends after everything that was written before. [Execution.Done] waits
// for both.
//
// # Trust
//
// Nothing that arrives from the guest is believed beyond its own execution. A
// forged done frame or nonce ends the execution of the code that forged it; a
// malformed frame ends the guest's conversation.
package guest
