package session

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

	"sallyport/internal/budget"
)

func TestOutputKeepsHeadAndTail(t *testing.T) {
	type w struct {
		s    Stream
		data string
	}
	tests := []struct {
		name   string
		budget int64
		writes []w
		out    Captured
		err    Captured
	}{
		{"nothing", 10, nil, Captured{}, Captured{}},
		{"within the budget", 10, []w{{Stdout, "abc"}, {Stderr, "de"}, {Stdout, "fgh"}}, Captured{Head: "abcfgh"}, Captured{Head: "de"}},
		{"exactly the budget", 10, []w{{Stdout, "0123456789"}}, Captured{Head: "0123456789"}, Captured{}},
		{"one byte more", 10, []w{{Stdout, "0123456789a"}}, Captured{Head: "01234", Tail: "6789a", Omitted: 1}, Captured{}},
		{"in small pieces", 10, []w{{Stdout, "01234567"}, {Stdout, "89"}, {Stdout, "ab"}, {Stdout, "c"}}, Captured{Head: "01234", Tail: "89abc", Omitted: 3}, Captured{}},
		{"one stream floods, the other keeps its head", 10, []w{{Stderr, "oh"}, {Stdout, strings.Repeat("x", 100)}}, Captured{Head: "xxx", Tail: "xxxxx", Omitted: 92}, Captured{Head: "oh"}},
		{"the last words come through", 10, []w{{Stdout, strings.Repeat("x", 100)}, {Stderr, "bye"}}, Captured{Head: "xxxxx", Tail: "xx", Omitted: 93}, Captured{Head: "bye"}},
		{"an odd budget", 3, []w{{Stdout, "abcdef"}}, Captured{Head: "ab", Tail: "f", Omitted: 3}, Captured{}},
		{"no budget", 0, []w{{Stdout, "abc"}}, Captured{Omitted: 3}, Captured{}},
		{"a code point over two writes", 100, []w{{Stdout, "a\xe2\x82"}, {Stdout, "\xacb"}}, Captured{Head: "a€b"}, Captured{}},
		{"bytes that are no text", 100, []w{{Stdout, "a\xff\xfeb"}}, Captured{Head: "a\ufffd\ufffdb"}, Captured{}},
		{"a cut through code points", 8, []w{{Stdout, "ab€€€€€yz"}}, Captured{Head: "ab", Tail: "yz", Omitted: 15}, Captured{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newOutput(tt.budget, nil, nil)
			for _, w := range tt.writes {
				o.write(w.s, []byte(w.data))
			}
			kept := o.close()
			if kept[Stdout] != tt.out {
				t.Errorf("stdout %+v, want %+v", kept[Stdout], tt.out)
			}
			if kept[Stderr] != tt.err {
				t.Errorf("stderr %+v, want %+v", kept[Stderr], tt.err)
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
		o := newOutput(limit, nil, nil)
		var all [streams]bytes.Buffer
		for range r.IntN(40) {
			s := Stream(r.IntN(2))
			p := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(60))
			all[s].Write(p)
			o.write(s, p)
			for i := range p {
				p[i] = '!' // the caller reuses its memory
			}
		}
		total := int64(0)
		for s, got := range o.close() {
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
	o := newOutput(100<<20, memory, nil)
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range 10_000 {
		o.write(Stdout, line)
	}
	if used := memory.Used(); used == 0 {
		t.Error("nothing is charged for what is kept")
	}
	kept := o.close()[Stdout]
	size := int64(len(kept.Head) + len(kept.Tail))
	if size < 512<<10 || size > 1<<20 || size+kept.Omitted != 10_000*int64(len(line)) {
		t.Errorf("kept %d bytes and left out %d of %d, want about 1 MB and the rest", size, kept.Omitted, 10_000*len(line))
	}
	if used := memory.Used(); used != 0 {
		t.Errorf("%d bytes are charged after the end, want 0", used)
	}
}

func TestOutputAfterItsEndIsDropped(t *testing.T) {
	o := newOutput(10, nil, nil)
	o.write(Stdout, []byte("a"))
	o.close()
	o.write(Stdout, []byte("b"))
	if got := o.close(); got[Stdout] != (Captured{}) {
		t.Errorf("kept %+v", got[Stdout])
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("a€\xff"), 2)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if got := text(b); !utf8.ValidString(got) || utf8.Valid(b) && got != string(b) {
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
	var got [streams]bytes.Buffer
	o := newOutput(10, nil, func(s Stream, p []byte) { got[s].Write(p) })
	var want bytes.Buffer
	for i := range 1000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		o.write(Stdout, []byte(line))
		o.write(Stderr, []byte("e"))
	}
	o.close()
	if got[Stdout].String() != want.String() || got[Stderr].Len() != 1000 {
		t.Errorf("the sink got %d and %d bytes", got[Stdout].Len(), got[Stderr].Len())
	}
}

func TestASlowSinkSlowsTheWriterUntilItIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := newOutput(100, nil, func(Stream, []byte) { <-release })
		var mu sync.Mutex
		written := 0
		go func() {
			for range 3 {
				o.write(Stdout, make([]byte, pumpRoom))
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
		o.abandon()
		synctest.Wait()
		mu.Lock()
		if written != 3 {
			t.Errorf("%d writes after the sink was abandoned", written)
		}
		mu.Unlock()
		began := time.Now()
		o.close()
		if took := time.Since(began); took != pumpGrace {
			t.Errorf("close took %v", took)
		}
		close(release)
		synctest.Wait()
	})
}

func TestStray(t *testing.T) {
	var s stray
	if text, omitted := s.take(); text != "" || omitted != 0 {
		t.Errorf("of nothing: %q, %d", text, omitted)
	}
	s.write([]byte("a"))
	s.write([]byte("b"))
	if text, omitted := s.take(); text != "ab" || omitted != 0 {
		t.Errorf("%q, %d", text, omitted)
	}
	for range 3 {
		s.write(bytes.Repeat([]byte("x"), maxStray-1))
	}
	s.write([]byte("the end"))
	text, omitted := s.take()
	if len(text) != maxStray || !strings.HasSuffix(text, "xthe end") || omitted != 2*maxStray-3+7 {
		t.Errorf("%d bytes, %d omitted, end %q", len(text), omitted, text[len(text)-8:])
	}
	s.write(bytes.Repeat([]byte("y"), 3*maxStray))
	if text, omitted := s.take(); len(text) != maxStray || omitted != 2*maxStray {
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
			o := newOutput(100<<20, memory, nil)
			piece := []byte(strings.Repeat(test.piece, 1000))
			for range 10_000 {
				o.write(Stdout, piece)
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
			o.close()
			if used := memory.Used(); used != 0 {
				t.Errorf("%d bytes are charged after the end, want 0", used)
			}
		})
	}
}
