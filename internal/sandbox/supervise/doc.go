// Package supervise holds what engines share about the runs they start: the
// helper process that a run hangs on (how it is started, commanded and ended),
// the run built on it, and the bookkeeping of an engine's runs.
//
// A helper is this program's own executable under another name. It holds one
// end of a lifeline, a stream socket whose other end is here. When this program
// dies, however it dies, the lifeline closes, and the helper ends with every
// process that it started. A sandbox therefore never outlives its program.
package supervise
