// Package faults kills processes of a live chain, `sallyport serve` with a
// session and everything below it, at random moments, and looks for what is
// left on the host.
//
// SALLYPORT_BIN names the built executable. SALLYPORT_FAULT_ROUNDS says how
// often (50 times where it is not set), SALLYPORT_FAULT_SEED repeats a run, and
// SALLYPORT_TEST_USER names the ordinary user as whom root also runs it.
package faults
