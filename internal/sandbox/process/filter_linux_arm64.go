package process

// deniedHere are calls that exist only on this architecture.
var deniedHere []uint32

// modeArgsHere are calls that exist only on this architecture: see modeArgs.
var modeArgsHere map[uint32]uint32
