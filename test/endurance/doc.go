// Package endurance has several Sallyports work on one state directory, under
// load, and holds what they answered against each other: nothing may be lost, and
// nothing may happen twice.
//
// SALLYPORT_BIN names the built executable. SALLYPORT_TEST_ENDURANCE says for how
// long (15 seconds where it is not set), and SALLYPORT_TEST_SALLYPORTS how many
// there are (2).
package endurance
