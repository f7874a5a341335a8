// Package engines runs the conformance suite of package sandboxtest over every
// engine that this machine has, as root and as an ordinary user.
//
// SALLYPORT_BIN names the built executable that engines start; without it the
// tests of real engines skip. SALLYPORT_MUST_RUN lists what must not skip, for
// example "gvisor.root,gvisor.user". Root's run also runs the suite as the user
// that SALLYPORT_TEST_USER names.
package engines
