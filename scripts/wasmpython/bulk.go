package main

// One instruction copies or fills any amount of memory, and the host waits for it. So
// functions replace it: they do it in pieces, and count a turn for each unit.
const (
	piece = 1 << 20
	unit  = 10 // the logarithm of its size in bytes
)

// Local variables of both functions.
const (
	target  = iota
	source  // the value, when memory is filled
	length  // what is left to do
	scratch // of the check
)

// get appends code that puts local variables on the stack.
func get(b []byte, locals ...byte) []byte {
	for _, local := range locals {
		b = append(b, opLocalGet, local)
	}
	return b
}

// move appends code that adds a piece to a local variable, or subtracts one.
func move(b []byte, local, op byte) []byte {
	b = appendS32(append(get(b, local), opI32Const), piece)
	return append(b, op, opLocalSet, local)
}

// pieces returns the body of a function that does something by pieces while more than
// one is left, then the rest.
func (f fuel) pieces(one func([]byte) []byte, rest ...byte) []byte {
	b := []byte{1, 1, typeI32} // one local variable
	b = append(b, opBlock, typeEmpty, opLoop, typeEmpty)
	b = appendS32(append(get(b, length), opI32Const), piece)
	b = append(b, opI32LeU, opBrIf, 1)
	b = one(b)
	b = move(b, length, opI32Sub)
	b = f.charge(b, scratch, func(b []byte) []byte { return appendS32(append(b, opI32Const), piece>>unit) })
	b = append(b, opBr, 0, opEnd, opEnd)
	b = append(get(b, target, source, length), rest...)
	b = f.charge(b, scratch, func(b []byte) []byte { return append(get(b, length), opI32Const, unit, opI32ShrU) })
	return append(b, opEnd)
}

// copyBody returns the body of the function in place of memory.copy. Where the places
// overlap, the pieces are copied in the order that saves what is copied later.
func (f fuel) copyBody() []byte {
	instruction := []byte{opMore, memoryCopy, 0, 0}
	return f.pieces(func(b []byte) []byte {
		b = append(get(b, target, source), opI32LeU, opIf, typeEmpty)
		b = appendS32(append(get(b, target, source), opI32Const), piece)
		b = append(b, instruction...)
		b = move(move(b, target, opI32Add), source, opI32Add)
		b = append(b, opElse)
		for _, local := range []byte{target, source} { // the last piece first
			b = append(get(b, local, length), opI32Add)
			b = append(appendS32(append(b, opI32Const), piece), opI32Sub)
		}
		b = appendS32(append(b, opI32Const), piece)
		return append(append(b, instruction...), opEnd)
	}, instruction...)
}

// fillBody returns the body of the function in place of memory.fill.
func (f fuel) fillBody() []byte {
	instruction := []byte{opMore, memoryFill, 0}
	return f.pieces(func(b []byte) []byte {
		b = appendS32(append(get(b, target, source), opI32Const), piece)
		return move(append(b, instruction...), target, opI32Add)
	}, instruction...)
}
