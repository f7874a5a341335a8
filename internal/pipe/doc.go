// Package pipe writes to pipes without waiting for their readers, and reads them without
// blocking a thread.
package pipe
