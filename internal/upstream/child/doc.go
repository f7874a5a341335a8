// Package child starts the programs that serve MCP on their standard input and
// output, and sees to it that they end.
//
// # What is guaranteed
//
// A program gets a session and a process group of its own (on Windows a job
// object), so that neither a Ctrl-C in our terminal nor its own terminal tricks
// cross over, and so that what it starts in turn (the node behind an npx) ends
// with it. Stop closes its input, waits, asks the whole group with SIGTERM,
// waits, and kills the whole group. When a program ends by itself, what is left
// of its group is ended too.
//
// When we ourselves die, however that happens, each program sees the end of its
// input. On Unix a lifeline, a tiny shell process that reads a pipe whose other
// end only we hold, then ends every group that is left: it waits one second,
// sends SIGTERM, waits two, sends SIGKILL. (A parent-death signal is not used:
// it follows the thread that started the program, and it reaches the npx but
// not the node behind it.) On Windows the job object does it.
//
// Not guaranteed: a program that leaves its process group on purpose (a
// daemon, a detached browser) is not followed; it would be the user's own
// long-lived daemon as often as not. Between the start of a program and the
// moment when the lifeline knows of it, some microseconds, only the end of
// input reaches it.
package child
