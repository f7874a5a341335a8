// Package pipe writes to pipes without waiting for their readers.
package pipe
