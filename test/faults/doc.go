// Package faults kills processes of a live chain, `sallyport serve` with a
// session and everything below it, at random moments, and looks for what is
// left on the host. It does the same with the hub of ten busy clients, and has
// clients come and go, and stand still.
//
// SALLYPORT_BIN names the built executable. SALLYPORT_FAULT_ROUNDS says how
// often (200 or more also mean 10,000 connects), SALLYPORT_FAULT_SEED repeats a
// run, and SALLYPORT_TEST_USER names the ordinary user as whom root also runs it.
package faults
