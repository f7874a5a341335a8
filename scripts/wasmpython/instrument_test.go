package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// example returns the module of testdata/example.wat.
func example(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/example.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// start returns an instance of a module and counts how often it calls the host
// because loops turned.
func start(t *testing.T, raw []byte) (api.Module, *int) {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { r.Close(ctx) })
	calls := new(int)
	if _, err := r.NewHostModuleBuilder("sallyport").NewFunctionBuilder().
		WithFunc(func() { *calls++ }).Export("fuel").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	// A host module of wazero has no globals: this one exports an i32, 42, and a
	// function that doubles its argument.
	host := append(bytes.Clone(header),
		1, 6, 1, 0x60, 1, typeI32, 1, typeI32,
		3, 2, 1, 0,
		6, 6, 1, typeI32, 0, opI32Const, 42, opEnd,
		7, 17, 2, 4, 'b', 'a', 's', 'e', kindGlobal, 0, 6, 'd', 'o', 'u', 'b', 'l', 'e', kindFunction, 0,
		10, 9, 1, 7, 0, opLocalGet, 0, opLocalGet, 0, opI32Add, opEnd)
	if _, err := r.InstantiateWithConfig(ctx, host, wazero.NewModuleConfig().WithName("host")); err != nil {
		t.Fatal(err)
	}
	m, err := r.InstantiateWithConfig(ctx, raw, wazero.NewModuleConfig().WithName("example"))
	if err != nil {
		t.Fatal(err)
	}
	return m, calls
}

// call calls an exported function.
func call(t *testing.T, m api.Module, name string, args ...uint64) uint32 {
	t.Helper()
	f := m.ExportedFunction(name)
	if f == nil {
		t.Fatalf("the module has no function %s", name)
	}
	results, err := f.Call(context.Background(), args...)
	if err != nil {
		t.Fatalf("%s%v: %v", name, args, err)
	}
	if len(results) == 0 {
		return 0
	}
	return uint32(results[0])
}

// instrumented returns the example after the pass.
func instrumented(t *testing.T) []byte {
	t.Helper()
	out, err := instrument(example(t))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestResultsStay(t *testing.T) {
	m, _ := start(t, instrumented(t))
	call(t, m, "load_data")
	for _, test := range []struct {
		name string
		args []uint64
		want uint32
	}{
		{"sum", []uint64{10}, 45},
		{"apply", []uint64{0, 20, 3}, 23},
		{"apply", []uint64{1, 20, 3}, 17},
		{"pick", []uint64{0}, 10},
		{"pick", []uint64{1}, 20},
		{"pick", []uint64{2}, 30},
		{"rest", nil, 0x01010101},
		{"apply", []uint64{2, 20, 3}, 17}, // rest put $sub there
		{"apply", []uint64{3, 20, 3}, 23}, // and $add
	} {
		if got := call(t, m, test.name, test.args...); got != test.want {
			t.Errorf("%s%v = %d, want %d", test.name, test.args, got, test.want)
		}
	}
}

func TestLoopsCallTheHost(t *testing.T) {
	for _, test := range []struct {
		n    uint64
		want int
	}{
		{1, 0},
		{turns - 1, 0},
		{turns, 1},
		{10*turns + 5, 10},
	} {
		m, calls := start(t, instrumented(t))
		call(t, m, "sum", test.n)
		if *calls != test.want {
			t.Errorf("%d turns call the host %d times, want %d", test.n, *calls, test.want)
		}
	}
}

func TestRecursionCallsTheHost(t *testing.T) {
	for _, name := range []string{"tree", "ring"} {
		m, calls := start(t, instrumented(t))
		call(t, m, "load_data")
		call(t, m, name, 17) // 262,143 calls
		if *calls != 2 {
			t.Errorf("%s calls the host %d times, want 2", name, *calls)
		}
	}
}

// TestPieces: copies and fills of any size leave what one instruction would leave.
func TestPieces(t *testing.T) {
	const size = 9 * piece
	m, calls := start(t, instrumented(t))
	call(t, m, "grow", size/65536)
	memory, _ := m.Memory().Read(0, size)
	want := make([]byte, size)
	for _, test := range []struct {
		name   string
		to     uint32
		source uint32
		n      uint32
	}{
		{"fill", 10, 0x7b, 5},
		{"fill", 77, 0x55, piece},
		{"fill", 3, 0xc3, 4*piece + 3},
		{"copy", 100, 200, 50},
		{"copy", 100, 50, 4*piece + 7},
		{"copy", 50, 100, 4*piece + 7},
		{"copy", 5 * piece, 1, 3*piece + 1},
		{"copy", 1, 5 * piece, 3 * piece},
		{"copy", 1000, 1000, 2*piece + 1},
		{"copy", 2 * piece, piece, 5 * piece},
		{"copy", 0, 0, 0},
	} {
		for i := range memory {
			memory[i] = byte(i * 7 >> 3)
		}
		copy(want, memory)
		if test.name == "fill" {
			for i := range test.n {
				want[test.to+i] = byte(test.source)
			}
		} else {
			copy(want[test.to:test.to+test.n], want[test.source:test.source+test.n])
		}
		call(t, m, test.name, uint64(test.to), uint64(test.source), uint64(test.n))
		if !bytes.Equal(memory, want) {
			t.Errorf("%s(%d, %d, %d): the memory differs from what one instruction leaves", test.name, test.to, test.source, test.n)
		}
	}
	before := *calls
	for range 100 {
		call(t, m, "fill", 0, 1, 8*piece)
	}
	if got, want := *calls-before, 100*8*piece>>unit/turns; got < want || got > want+1 {
		t.Errorf("800 MB call the host %d times, want %d", got, want)
	}
}

func TestDataIsWrittenOnRequest(t *testing.T) {
	m, _ := start(t, instrumented(t))
	read := func(at uint32) string {
		b, _ := m.Memory().Read(at, 6)
		return string(bytes.Trim(b, "\x00"))
	}
	if got := read(8) + read(70); got != "" {
		t.Errorf("before load_data the memory has %q, want nothing", got)
	}
	call(t, m, "load_data")
	if got, want := read(8)+" "+read(70), "first second"; got != want {
		t.Errorf("after load_data the memory has %q, want %q", got, want)
	}
	call(t, m, "load_data") // nothing was dropped
}

func TestGlobalsAreExported(t *testing.T) {
	m, _ := start(t, instrumented(t))
	call(t, m, "sum", 5)
	var got []string
	for i := range 4 {
		g := m.ExportedGlobal(fmt.Sprint("g", i))
		if g == nil {
			got = append(got, "none")
			continue
		}
		_, mutable := g.(api.MutableGlobal)
		got = append(got, fmt.Sprint(g, mutable))
	}
	want := []string{"global(11) true", "global(2.500000) true", "global(99995) true", "none"}
	if !slices.Equal(got, want) {
		t.Errorf("the globals are %q, want %q", got, want)
	}
}

// TestMinimal: a module of nothing gets what is missing.
func TestMinimal(t *testing.T) {
	out, err := instrument(header)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := start(t, out)
	call(t, m, "load_data")
}

func TestRefused(t *testing.T) {
	section := func(id byte, content ...byte) []byte {
		return appendBytes(append(bytes.Clone(header), id), content)
	}
	for _, test := range []struct {
		name string
		raw  []byte
	}{
		{"nothing", nil},
		{"another version", []byte("\x00asm\x02\x00\x00\x00")},
		{"a section that is not known", section(13, 0)},
		{"a section twice", append(section(1, 0), 1, 1, 0)},
		{"a section that is too short", append(section(1, 0), 3, 5, 0)},
		{"a number that is too long", section(1, 0x80, 0x80, 0x80, 0x80, 0x80, 0)},
		{"a number that is too large", section(1, 0xff, 0xff, 0xff, 0xff, 0x7f)},
		{"a type that is no function", section(1, 1, 0x5f, 0, 0)},
		{"a function of no type", section(3, 1, 0)},
		{"a function without a body", append(section(1, 1, 0x60, 0, 0), 3, 2, 1, 0)},
		{"a table of 64 bits", section(2, 1, 0, 0, kindTable, 0x70, 4, 0)},
		{"data at a global's place", section(11, 1, 0, opGlobalGet, 0, opEnd, 0)},
		{"data of a kind that is not known", section(11, 1, 3, 0)},
		{"vectors", append(section(1, 1, 0x60, 0, 0), 3, 2, 1, 0, 10, 6, 1, 4, 0, 0xfd, 0, opEnd)},
		{"a body without an end", append(section(1, 1, 0x60, 0, 0), 3, 2, 1, 0, 10, 4, 1, 2, 0, 1)},
		{"too many variables", append(section(1, 1, 0x60, 0, 0), 3, 2, 1, 0, 10, 10, 1, 8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, typeI32, opEnd)},
	} {
		if out, err := instrument(test.raw); err == nil {
			t.Errorf("%s: %d bytes, want an error", test.name, len(out))
		}
	}
}

// TestCutOff: a part of a module is an error, wherever it ends inside a section.
func TestCutOff(t *testing.T) {
	raw := example(t)
	code := bytes.LastIndex(raw, []byte("second")) + len("second")
	for n := range code {
		if _, err := instrument(raw[:n]); err == nil && !whole(raw, n) {
			t.Errorf("the first %d of %d bytes are accepted", n, code)
		}
	}
}

// whole reports whether a section ends at this byte.
func whole(raw []byte, n int) bool {
	r := &reader{data: raw[len(header):]}
	for r.err == nil && len(raw)-len(r.data) < n {
		r.byte()
		r.name()
	}
	return len(raw)-len(r.data) == n
}

// FuzzInstrument: no input makes the pass panic.
func FuzzInstrument(f *testing.F) {
	raw := example(f)
	f.Add(raw)
	for i := range raw {
		changed := bytes.Clone(raw)
		changed[i] ^= 0xff
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if out, err := instrument(raw); err == nil && !bytes.HasPrefix(out, header) {
			t.Errorf("%q is no module", out)
		}
	})
}

func TestNumbers(t *testing.T) {
	for _, n := range []int32{0, 1, -1, 63, 64, -64, -65, 8191, -8193, 1<<31 - 1, -1 << 31} {
		r := &reader{data: appendS32(nil, n)}
		if got := r.s32(); got != n || r.end() != nil {
			t.Errorf("%d is read as %d, %v", n, got, r.end())
		}
		r = &reader{data: appendU32(nil, uint32(n))}
		if got := r.u32(); got != uint32(n) || r.end() != nil {
			t.Errorf("%d is read as %d, %v", uint32(n), got, r.end())
		}
	}
}
