package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOutputKeepsHeadAndTail(t *testing.T) {
	type w struct {
		s    wire.Stream
		data string
	}
	tests := []struct {
		name   string
		budget int64
		writes []w
		out    Output
		err    Output
	}{
		{"nothing", 10, nil, Output{}, Output{}},
		{"within the budget", 10, []w{{wire.Stdout, "abc"}, {wire.Stderr, "de"}, {wire.Stdout, "fgh"}}, Output{Head: "abcfgh"}, Output{Head: "de"}},
		{"exactly the budget", 10, []w{{wire.Stdout, "0123456789"}}, Output{Head: "0123456789"}, Output{}},
		{"one byte more", 10, []w{{wire.Stdout, "0123456789a"}}, Output{Head: "01234", Tail: "6789a", Omitted: 1, Lost: Lost{-1, 1}}, Output{}},
		{"in small pieces", 10, []w{{wire.Stdout, "01234567"}, {wire.Stdout, "89"}, {wire.Stdout, "ab"}, {wire.Stdout, "c"}}, Output{Head: "01234", Tail: "89abc", Omitted: 3, Lost: Lost{-1, 3}}, Output{}},
		{"one stream floods, the other keeps its head", 10, []w{{wire.Stderr, "oh"}, {wire.Stdout, strings.Repeat("x", 100)}}, Output{Head: "xxx", Tail: "xxxxx", Omitted: 92, Lost: Lost{-1, 92}}, Output{Head: "oh"}},
		{"the last words come through", 10, []w{{wire.Stdout, strings.Repeat("x", 100)}, {wire.Stderr, "bye"}}, Output{Head: "xxxxx", Tail: "xx", Omitted: 93, Lost: Lost{-1, 93}}, Output{Head: "bye"}},
		{"lines, cut within", 10, []w{{wire.Stdout, "11\n22\n3é\n44\n55\n"}}, Output{Head: "11\n22", Tail: "4\n55\n", Omitted: 6, Lost: Lost{1, 5}}, Output{}},
		{"lines, cut between", 6, []w{{wire.Stdout, "11\n22\n33\n44\n"}}, Output{Head: "11\n", Tail: "44\n", Omitted: 6, Lost: Lost{2, 6}}, Output{}},
		{"an odd budget", 3, []w{{wire.Stdout, "abcdef"}}, Output{Head: "ab", Tail: "f", Omitted: 3, Lost: Lost{-1, 3}}, Output{}},
		{"no budget", 0, []w{{wire.Stdout, "abc"}}, Output{Omitted: 3, Lost: Lost{0, 3}}, Output{}},
		{"a code point over two writes", 100, []w{{wire.Stdout, "a\xe2\x82"}, {wire.Stdout, "\xacb"}}, Output{Head: "a€b"}, Output{}},
		{"bytes that are no text", 100, []w{{wire.Stdout, "a\xff\xfeb"}}, Output{Head: "a\ufffd\ufffdb"}, Output{}},
		{"a cut through code points", 8, []w{{wire.Stdout, "ab€€€€€yz"}}, Output{Head: "ab", Tail: "yz", Omitted: 15, Lost: Lost{-1, 5}}, Output{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := New(tt.budget, nil, nil)
			for _, w := range tt.writes {
				o.Write(w.s, []byte(w.data))
			}
			stdout, stderr := o.Close()
			if stdout != tt.out {
				t.Errorf("stdout: got %+v, want %+v", stdout, tt.out)
			}
			if stderr != tt.err {
				t.Errorf("stderr: got %+v, want %+v", stderr, tt.err)
			}
		})
	}
}

// Whatever is written, what is kept is a prefix and a suffix, within the
// budget, and nothing is unaccounted for.
func TestOutputOfAnyShape(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := r.Int64N(200)
		o := New(limit, nil, nil)
		var all [wire.Streams]bytes.Buffer
		for range r.IntN(40) {
			s := wire.Stream(r.IntN(2))
			p := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(60))
			all[s].Write(p)
			o.Write(s, p)
			for i := range p {
				p[i] = '!' // the caller reuses its memory
			}
		}
		total := int64(0)
		stdout, stderr := o.Close()
		for s, got := range []Output{stdout, stderr} {
			want := all[s].String()
			total += int64(len(got.Head) + len(got.Tail))
			if !strings.HasPrefix(want, got.Head) || !strings.HasSuffix(want, got.Tail) ||
				int64(len(got.Head)+len(got.Tail))+got.Omitted != int64(len(want)) {
				t.Fatalf("seed %d, stream %d: %+v of %q", seed, s, got, want)
			}
		}
		if total > limit {
			t.Fatalf("seed %d: kept %d bytes, limit %d", seed, total, limit)
		}
	}
}

// Where there is no memory, less is kept, and told as left out.
func TestOutputWithoutMemory(t *testing.T) {
	memory := budget.New(2 << 20)
	o := New(100<<20, memory, nil)
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range 10_000 {
		o.Write(wire.Stdout, line)
	}
	if used := memory.Used(); used == 0 {
		t.Error("nothing is charged for what is kept")
	}
	kept, _ := o.Close()
	size := int64(len(kept.Head) + len(kept.Tail))
	if size < 512<<10 || size > 1<<20 || size+kept.Omitted != 10_000*int64(len(line)) {
		t.Errorf("kept %d bytes and left out %d of %d, want about 1 MB and the rest", size, kept.Omitted, 10_000*len(line))
	}
	if used := memory.Used(); used != 0 {
		t.Errorf("%d bytes are charged after the end, want 0", used)
	}
}

func TestTake(t *testing.T) {
	memory := budget.New(1 << 20)
	o := New(20, memory, nil)
	take := func(want string) {
		t.Helper()
		out, _ := o.Take()
		if got := fmt.Sprintf("%s|%s|%d", out.Head, out.Tail, out.Omitted); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	o.Write(wire.Stdout, []byte("one\n\xe2\x82"))
	take("one\n||0")
	o.Write(wire.Stdout, []byte("\xac two"))
	take("€ two||0")
	take("||0")
	o.Write(wire.Stdout, []byte(strings.Repeat("a", 30)+"0123456789"))
	take("aaaaaaaaaa|0123456789|20")
	o.Write(wire.Stdout, []byte("end"))
	if out, _ := o.Close(); out != (Output{Head: "end"}) {
		t.Errorf("got %+v after the last Take, want the end", out)
	}
	if used := memory.Used(); used != 0 {
		t.Errorf("%d bytes are charged after the end, want 0", used)
	}
}

func TestOutputAfterItsEndIsDropped(t *testing.T) {
	o := New(10, nil, nil)
	o.Write(wire.Stdout, []byte("a"))
	o.Close()
	o.Write(wire.Stdout, []byte("b"))
	if got, _ := o.Close(); got != (Output{}) {
		t.Errorf("got %+v after the end, want nothing", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("a€\xff"), 2)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if got := decode(b); !utf8.ValidString(got) || utf8.Valid(b) && got != string(b) {
			t.Errorf("%q became %q", b, got)
		}
		if !utf8.Valid(b) || cut < 0 || cut > len(b) {
			return
		}
		// A cut through valid text leaves valid text on both sides.
		if !utf8.Valid(trimEnd(b[:cut])) || !utf8.Valid(trimStart(b[cut:])) {
			t.Errorf("%q cut at %d: %q and %q", b, cut, trimEnd(b[:cut]), trimStart(b[cut:]))
		}
	})
}

func TestSinkGetsEverythingInOrder(t *testing.T) {
	var got [wire.Streams]bytes.Buffer
	o := New(10, nil, func(s wire.Stream, p []byte) { got[s].Write(p) })
	var want bytes.Buffer
	for i := range 1000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		o.Write(wire.Stdout, []byte(line))
		o.Write(wire.Stderr, []byte("e"))
	}
	o.Close()
	if got[wire.Stdout].String() != want.String() || got[wire.Stderr].Len() != 1000 {
		t.Errorf("the sink got %d and %d bytes", got[wire.Stdout].Len(), got[wire.Stderr].Len())
	}
}

func TestASlowSinkSlowsTheWriterUntilItIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := New(100, nil, func(wire.Stream, []byte) { <-release })
		var mu sync.Mutex
		written := 0
		go func() {
			for range 3 {
				o.Write(wire.Stdout, make([]byte, liveRoom))
				mu.Lock()
				written++
				mu.Unlock()
			}
		}()
		synctest.Wait()
		mu.Lock()
		if written != 1 {
			t.Errorf("%d writes went through a sink that is stuck", written)
		}
		mu.Unlock()
		o.Abandon()
		synctest.Wait()
		mu.Lock()
		if written != 3 {
			t.Errorf("%d writes after the sink was abandoned", written)
		}
		mu.Unlock()
		began := time.Now()
		o.Close()
		if took := time.Since(began); took != liveGrace {
			t.Errorf("close took %v", took)
		}
		close(release)
		synctest.Wait()
	})
}

func TestIdle(t *testing.T) {
	var s Idle
	if text, omitted := s.Take(); text != "" || omitted != 0 {
		t.Errorf("of nothing: %q, %d", text, omitted)
	}
	s.Write([]byte("a"))
	s.Write([]byte("b"))
	if text, omitted := s.Take(); text != "ab" || omitted != 0 {
		t.Errorf("%q, %d", text, omitted)
	}
	for range 3 {
		s.Write(bytes.Repeat([]byte("x"), maxIdle-1))
	}
	s.Write([]byte("the end"))
	text, omitted := s.Take()
	if len(text) != maxIdle || !strings.HasSuffix(text, "xthe end") || omitted != 2*maxIdle-3+7 {
		t.Errorf("%d bytes, %d omitted, end %q", len(text), omitted, text[len(text)-8:])
	}
	s.Write(bytes.Repeat([]byte("y"), 3*maxIdle))
	if text, omitted := s.Take(); len(text) != maxIdle || omitted != 2*maxIdle {
		t.Errorf("one large write: %d bytes, %d omitted", len(text), omitted)
	}
}

// What takes more room in a result than in the stream is charged for that.
func TestOutputIsWeighed(t *testing.T) {
	for _, test := range []struct {
		name, piece string
		least, most int
	}{
		{"plain", "x", 900 << 10, 1 << 20},
		{"control characters", "\x01", 100 << 10, 180 << 10},
		{"empty lines", "\n", 40 << 10, 90 << 10},
		{"no UTF-8", "\xff", 200 << 10, 350 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			memory := budget.New(2 << 20)
			o := New(100<<20, memory, nil)
			piece := []byte(strings.Repeat(test.piece, 1000))
			for range 10_000 {
				o.Write(wire.Stdout, piece)
			}
			kept := 0
			for _, head := range o.head {
				kept += len(head)
			}
			for _, c := range o.tail {
				kept += len(c.data)
			}
			if kept < test.least || kept > test.most {
				t.Errorf("kept %d bytes, want %d to %d", kept, test.least, test.most)
			}
			o.Close()
			if used := memory.Used(); used != 0 {
				t.Errorf("%d bytes are charged after the end, want 0", used)
			}
		})
	}
}
