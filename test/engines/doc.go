// Package engines runs the conformance suite of package sandboxtest, and the
// guide's first example, over every engine that this machine has, as root and as an
// ordinary user.
//
// SALLYPORT_BIN names the built executable that engines start; without it the
// tests of real engines skip. SALLYPORT_TEST_IMAGE names the image that
// container engines have; without it they skip. SALLYPORT_MUST_RUN lists what
// must not skip, for example "gvisor.root,gvisor.user". Root's run also runs the
// suite as the user that SALLYPORT_TEST_USER names.
//
// The script run gives the machine container engines of its own, runs all
// suites, and has the command matrix put the results side by side; expected.txt
// lists where an engine differs, and why.
package engines
