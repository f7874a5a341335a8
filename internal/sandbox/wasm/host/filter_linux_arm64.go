package host

// allowedHere are calls that exist only on this architecture.
var allowedHere []uint32

// forbiddenHere end the process, too.
var forbiddenHere []uint32
