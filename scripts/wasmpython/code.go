package main

import "fmt"

// Opcodes that the pass looks at or writes.
const (
	opLoop      = 0x03
	opIf        = 0x04
	opElse      = 0x05
	opBlock     = 0x02
	opEnd       = 0x0b
	opBr        = 0x0c
	opBrIf      = 0x0d
	opCall      = 0x10
	opIndirect  = 0x11
	opLocalGet  = 0x20
	opLocalSet  = 0x21
	opLocalTee  = 0x22
	opGlobalGet = 0x23
	opGlobalSet = 0x24
	opI32Const  = 0x41
	opI32Eqz    = 0x45
	opI32LtS    = 0x48
	opI32LeU    = 0x4d
	opI32Add    = 0x6a
	opI32Sub    = 0x6b
	opI32ShrU   = 0x76
	opRefNull   = 0xd0
	opRefFunc   = 0xd2
	opMore      = 0xfc // more opcodes follow it
	memoryInit  = 8    // after opMore
	memoryCopy  = 10
	memoryFill  = 11

	typeI32   = 0x7f
	typeEmpty = 0x40
)

// A shift maps the indices of functions: those from first on are one higher.
type shift struct{ first uint32 }

// at maps one index.
func (s shift) at(n uint32) uint32 {
	if n >= s.first {
		n++
	}
	return n
}

// A fuel is how code calls the host: where the counter and the functions are.
type fuel struct {
	shift    shift
	function uint32 // the host's, called when the counter is used up
	counter  uint32 // the global
	copy     uint32 // what replaces memory.copy
	fill     uint32 // and memory.fill
}

// check appends the code at the head of a loop, and of a function that may call
// itself: it counts down and calls the host each turns turns. It leaves the operand
// stack as it was.
func (f fuel) check(b []byte, local uint32) []byte {
	return f.charge(b, local, func(b []byte) []byte { return append(b, opI32Const, 1) })
}

// charge appends code that takes from the counter what amount puts on the stack: less
// than 1<<30. It calls the host where less than one turn is left. A counter that is
// wrong, because a snapshot was, makes it call the host at once.
func (f fuel) charge(b []byte, local uint32, amount func([]byte) []byte) []byte {
	b = appendU32(append(b, opGlobalGet), f.counter)
	b = append(amount(b), opI32Sub)
	b = appendU32(append(b, opLocalTee), local)
	b = appendU32(append(b, opGlobalSet), f.counter)
	b = appendU32(append(b, opLocalGet), local)
	b = append(b, opI32Const, 1, opI32LtS, opIf, typeEmpty)
	b = appendS32(append(b, opI32Const), turns)
	b = appendU32(append(b, opGlobalSet), f.counter)
	b = appendU32(append(b, opCall), f.function)
	return append(b, opEnd)
}

// body rewrites the body of a function that has params parameters. If recursive is set,
// it begins with a check.
func (f fuel) body(code []byte, params uint32, recursive bool) ([]byte, error) {
	r := &reader{data: code}
	groups := r.count()
	locals := uint64(params)
	declared := r.data
	for range groups {
		locals += uint64(r.u32())
		r.byte()
		if r.err != nil {
			break
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if locals >= 50_000 {
		return nil, fmt.Errorf("%d local variables", locals)
	}
	declared = declared[:len(declared)-len(r.data)]

	instructions := make([]byte, 0, len(code)+len(code)/8)
	checked := recursive
	if recursive {
		instructions = f.check(instructions, uint32(locals))
	}
	for len(r.data) > 0 {
		before := r.data
		switch op := r.byte(); op {
		case opCall, opRefFunc:
			instructions = appendU32(append(instructions, op), f.shift.at(r.u32()))
		case opLoop:
			r.leb(33)
			instructions = append(instructions, before[:len(before)-len(r.data)]...)
			instructions = f.check(instructions, uint32(locals))
			checked = true
		case opMore:
			more := r.more()
			if function, replaced := map[uint32]uint32{memoryCopy: f.copy, memoryFill: f.fill}[more]; replaced {
				instructions = appendU32(append(instructions, opCall), function)
			} else {
				instructions = append(instructions, before[:len(before)-len(r.data)]...)
			}
		default:
			r.operands(op)
			instructions = append(instructions, before[:len(before)-len(r.data)]...)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	if n := len(instructions); n == 0 || instructions[n-1] != opEnd {
		return nil, errShort
	}
	if checked {
		groups++
		declared = append(declared[:len(declared):len(declared)], 1, typeI32)
	}
	out := appendU32(nil, groups)
	out = append(out, declared...)
	return append(out, instructions...), nil
}

// operands reads what follows an opcode.
func (r *reader) operands(op byte) {
	switch {
	case op == opBlock || op == opIf:
		r.leb(33)
	case op <= 0x01 || op == opElse || op == opEnd || op == 0x0f || op == 0x1a || op == 0x1b:
	case op == opBr || op == opBrIf:
		r.u32()
	case op == 0x0e: // br_table
		for n := r.count(); n > 0 && r.err == nil; n-- {
			r.u32()
		}
		r.u32()
	case op == opIndirect:
		r.u32()
		r.u32()
	case op == 0x1c: // select with types
		r.bytes(r.u32())
	case op >= opLocalGet && op <= 0x26: // variables, table.get, table.set
		r.u32()
	case op >= 0x28 && op <= 0x3e: // loads and stores
		r.u32()
		r.u32()
	case op == 0x3f || op == 0x40: // memory.size, memory.grow
		r.byte()
	case op == opI32Const:
		r.leb(32)
	case op == 0x42: // i64.const
		r.leb(64)
	case op == 0x43: // f32.const
		r.bytes(4)
	case op == 0x44: // f64.const
		r.bytes(8)
	case op >= opI32Eqz && op <= 0xc4 || op == 0xd1: // numbers, ref.is_null
	case op == opRefNull:
		r.byte()
	case op == opMore:
		r.more()
	default:
		r.fail(fmt.Errorf("opcode %#x is not known", op))
	}
}

// more reads the rest of an opcode of two parts, and returns its second part.
func (r *reader) more() uint32 {
	op := r.u32()
	switch {
	case op <= 7: // conversions that saturate
	case op == memoryInit, op == memoryCopy, op == 12, op == 14: // and memory.copy, table.init, table.copy
		r.u32()
		r.u32()
	case op == 9, op == memoryFill, op == 13, op >= 15 && op <= 17:
		r.u32()
	default:
		r.fail(fmt.Errorf("opcode %#x %#x is not known", opMore, op))
	}
	return op
}
