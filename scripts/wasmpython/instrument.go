package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Sections, by their numbers in the file.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
	sections
)

// Kinds of what is imported and exported.
const (
	kindFunction = iota
	kindTable
	kindMemory
	kindGlobal
)

// turns is how often loops turn between two calls of the host.
const turns = 100_000

// header starts each module.
var header = []byte("\x00asm\x01\x00\x00\x00")

// order is the order of the sections in the file.
var order = []int{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal,
	sectionExport, sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

// A module is one that the pass rewrites.
type module struct {
	content   [sections][]byte
	params    []uint32 // of each type
	empty     uint32   // the type without parameters and results
	bulk      uint32   // the type of memory.copy and memory.fill
	memory    bool     // there is one
	imported  uint32   // functions
	functions []uint32 // the types of those that the module defines
	globals   uint32
	mutable   []uint32        // globals that change, and that the module defines
	taken     map[uint32]bool // functions that tables and variables have
	fuel      fuel
	load      uint32   // the function that writes the data
	segments  []uint32 // the lengths of the data's segments
	offsets   []int32  // and where they go; those of passive segments are -1
}

// instrument returns the module with three things added: a call of the host from
// whatever may run for long, which is loops, recursion, and copies of much memory; a
// function that writes the initial content of the memory, which no longer happens by
// itself; and exports of all variables.
func instrument(raw []byte) ([]byte, error) {
	m := &module{taken: map[uint32]bool{}}
	if err := m.split(raw); err != nil {
		return nil, err
	}
	// The order matters: a step uses what the ones before it learnt.
	steps := []struct {
		name string
		do   func(*reader) ([]byte, error)
		id   int
	}{
		{"types", m.types, sectionType},
		{"imports", m.imports, sectionImport},
		{"functions", m.declare, sectionFunction},
		{"globals", m.variables, sectionGlobal},
		{"exports", m.exports, sectionExport},
		{"start", m.start, sectionStart},
		{"elements", m.elements, sectionElement},
		{"data", m.data, sectionData},
		{"code", m.code, sectionCode},
	}
	for _, s := range steps {
		content, err := s.do(&reader{data: m.content[s.id]})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		m.content[s.id] = content
	}
	m.content[sectionDataCount] = appendU32(nil, uint32(len(m.segments)))
	out := bytes.Clone(header)
	for _, id := range order {
		if m.content[id] != nil {
			out = appendBytes(append(out, byte(id)), m.content[id])
		}
	}
	return out, nil
}

// split finds the sections. Those for tools are left out.
func (m *module) split(raw []byte) error {
	body, ok := bytes.CutPrefix(raw, header)
	if !ok {
		return errors.New("this is no module")
	}
	r := &reader{data: body}
	for len(r.data) > 0 {
		id := int(r.byte())
		content := r.name()
		switch {
		case r.err != nil:
		case id == sectionCustom:
		case id >= sections:
			return fmt.Errorf("section %d is not known", id)
		case m.content[id] != nil:
			return fmt.Errorf("section %d is there twice", id)
		default:
			m.content[id] = content
		}
	}
	return r.err
}

// types learns how many parameters each type has, and adds the empty one.
func (m *module) types(r *reader) ([]byte, error) {
	n := r.vector()
	rest := r.data
	empty := -1
	for i := range n {
		if form := r.byte(); r.err == nil && form != 0x60 {
			return nil, fmt.Errorf("form %#x is not known", form)
		}
		params := r.name()
		results := r.name()
		if r.err != nil {
			return nil, r.err
		}
		m.params = append(m.params, uint32(len(params)))
		if len(params) == 0 && len(results) == 0 && empty < 0 {
			empty = int(i)
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if empty < 0 {
		empty = int(n)
		n++
		rest = append(bytes.Clone(rest), 0x60, 0, 0)
		m.params = append(m.params, 0)
	}
	m.empty = uint32(empty)
	m.bulk = n
	m.params = append(m.params, 3)
	rest = append(bytes.Clone(rest), 0x60, 3, typeI32, typeI32, typeI32, 0)
	return append(appendU32(nil, n+1), rest...), nil
}

// imports adds the host's function after the other imported ones.
func (m *module) imports(r *reader) ([]byte, error) {
	n := r.vector()
	rest := r.data
	for range n {
		r.name()
		r.name()
		switch kind := r.byte(); kind {
		case kindFunction:
			r.u32()
			m.imported++
		case kindTable:
			r.byte()
			r.limits()
		case kindMemory:
			r.limits()
			m.memory = true
		case kindGlobal:
			r.byte()
			r.byte()
			m.globals++
		default:
			r.fail(fmt.Errorf("kind %#x is not known", kind))
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	m.fuel.shift = shift{m.imported}
	m.fuel.function = m.imported
	out := append(appendU32(nil, n+1), rest...)
	out = appendBytes(out, []byte("sallyport"))
	out = appendBytes(out, []byte("fuel"))
	return appendU32(append(out, kindFunction), m.empty), r.end()
}

// declare adds the function that writes the data, and those for large pieces of memory.
func (m *module) declare(r *reader) ([]byte, error) {
	n := r.vector()
	rest := r.data
	for range n {
		index := r.u32()
		if r.err == nil && uint64(index) >= uint64(len(m.params)) {
			return nil, fmt.Errorf("type %d is not known", index)
		}
		m.functions = append(m.functions, index)
	}
	m.load = m.imported + 1 + n
	m.fuel.copy, m.fuel.fill = m.load+1, m.load+2
	m.memory = m.memory || m.content[sectionMemory] != nil
	out := appendU32(append(appendU32(nil, n+3), rest...), m.empty)
	return appendU32(appendU32(out, m.bulk), m.bulk), r.end()
}

// variables adds the counter and learns which globals change.
func (m *module) variables(r *reader) ([]byte, error) {
	n := r.vector()
	out := appendU32(nil, n+1)
	for range n {
		kind := r.byte()
		changes := r.byte()
		if changes == 1 {
			m.mutable = append(m.mutable, m.globals)
		}
		m.globals++
		out = m.constant(append(out, kind, changes), r)
		if r.err != nil {
			return nil, r.err
		}
	}
	m.fuel.counter = m.globals
	m.mutable = append(m.mutable, m.globals)
	m.globals++
	out = appendS32(append(out, typeI32, 1, opI32Const), turns)
	return append(out, opEnd), r.end()
}

// constant copies an expression that is known when the module is loaded.
func (m *module) constant(out []byte, r *reader) []byte {
	for r.err == nil {
		before := r.data
		switch op := r.byte(); op {
		case opRefFunc:
			out = appendU32(append(out, op), m.take(r.u32()))
			continue
		case opEnd:
			return append(out, op)
		case opGlobalGet, opI32Const, 0x42, 0x43, 0x44, opRefNull:
			r.operands(op)
		default:
			r.fail(fmt.Errorf("opcode %#x in a constant", op))
		}
		out = append(out, before[:len(before)-len(r.data)]...)
	}
	return out
}

// take notes that a function may be called through a table, and maps its index.
func (m *module) take(index uint32) uint32 {
	m.taken[index] = true
	return m.fuel.shift.at(index)
}

// exports adds the globals that change and the function that writes the data.
func (m *module) exports(r *reader) ([]byte, error) {
	n := r.vector()
	var out []byte
	for range n {
		name := r.name()
		kind := r.byte()
		index := r.u32()
		if kind == kindFunction {
			index = m.fuel.shift.at(index)
		}
		out = appendU32(append(appendBytes(out, name), kind), index)
		if r.err != nil {
			return nil, r.err
		}
	}
	for i, index := range m.mutable {
		out = appendBytes(out, strconv.AppendInt([]byte("g"), int64(i), 10))
		out = appendU32(append(out, kindGlobal), index)
		n++
	}
	out = appendBytes(out, []byte("load_data"))
	out = appendU32(append(out, kindFunction), m.load)
	return append(appendU32(nil, n+1), out...), r.end()
}

// start maps the function that runs first.
func (m *module) start(r *reader) ([]byte, error) {
	if r.data == nil {
		return nil, nil
	}
	return appendU32(nil, m.fuel.shift.at(r.u32())), r.end()
}

// elements maps the functions in the tables.
func (m *module) elements(r *reader) ([]byte, error) {
	if r.data == nil {
		return nil, nil
	}
	n := r.count()
	out := appendU32(nil, n)
	for range n {
		flags := r.u32()
		if r.err == nil && flags > 7 {
			return nil, fmt.Errorf("a segment of kind %#x", flags)
		}
		out = appendU32(out, flags)
		if flags&1 == 0 {
			if flags&2 != 0 {
				out = appendU32(out, r.u32())
			}
			out = m.constant(out, r)
		}
		if flags&3 != 0 {
			out = append(out, r.byte())
		}
		items := r.count()
		out = appendU32(out, items)
		for range items {
			if flags&4 != 0 {
				out = m.constant(out, r)
			} else {
				out = appendU32(out, m.take(r.u32()))
			}
			if r.err != nil {
				break
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return out, r.end()
}

// data makes the segments passive.
func (m *module) data(r *reader) ([]byte, error) {
	n := r.vector()
	out := appendU32(nil, n)
	for range n {
		offset := int32(-1)
		switch flags := r.u32(); flags {
		case 0:
			if op := r.byte(); r.err == nil && op != opI32Const {
				return nil, fmt.Errorf("opcode %#x in an offset", op)
			}
			offset = r.s32()
			if op := r.byte(); r.err == nil && (op != opEnd || offset < 0) {
				return nil, errors.New("an offset is no plain number")
			}
		case 1:
		default:
			r.fail(fmt.Errorf("a segment of kind %#x", flags))
		}
		content := r.name()
		if r.err != nil {
			return nil, r.err
		}
		m.segments = append(m.segments, uint32(len(content)))
		m.offsets = append(m.offsets, offset)
		out = appendBytes(append(out, 1), content)
	}
	return out, r.end()
}

// code rewrites the functions and adds those of the pass.
func (m *module) code(r *reader) ([]byte, error) {
	n := r.vector()
	if r.err == nil && n != uint32(len(m.functions)) {
		return nil, fmt.Errorf("%d bodies for %d functions", n, len(m.functions))
	}
	size := len(r.data)
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = r.name()
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	recursive, err := m.recursive(bodies)
	if err != nil {
		return nil, err
	}
	out := appendU32(make([]byte, 0, 2*size), n+3)
	for i, code := range bodies {
		code, err := m.fuel.body(code, m.params[m.functions[i]], recursive[i])
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		out = appendBytes(out, code)
	}
	load := []byte{0} // no local variables
	for i, offset := range m.offsets {
		if offset < 0 {
			continue
		}
		load = appendS32(append(load, opI32Const), offset)
		load = append(load, opI32Const, 0)
		load = appendS32(append(load, opI32Const), int32(m.segments[i]))
		load = appendU32(append(load, opMore, memoryInit), uint32(i))
		load = append(load, 0)
	}
	out = appendBytes(out, append(load, opEnd))
	if !m.memory {
		nothing := []byte{0, opEnd}
		return appendBytes(appendBytes(out, nothing), nothing), nil
	}
	return appendBytes(appendBytes(out, m.fuel.copyBody()), m.fuel.fillBody()), nil
}

// vector reads the length of a section that may be absent.
func (r *reader) vector() uint32 {
	if r.data == nil {
		return 0
	}
	return r.count()
}
