package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readAll(t *testing.T, r io.Reader, max int) (lines []string, overlong []int64) {
	t.Helper()
	reader := newLineReader(r, max)
	for {
		l, err := reader.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return lines, overlong
		}
		if l.overlong {
			overlong = append(overlong, l.length)
			continue
		}
		lines = append(lines, string(l.data))
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 40<<10)
	huge := strings.Repeat("y", 300<<10)
	tests := []struct {
		name, in string
		max      int
		lines    []string
		overlong []int64
	}{
		{"empty", "", 100, nil, nil},
		{"one", "a\n", 100, []string{"a"}, nil},
		{"no newline at the end", "a\nb", 100, []string{"a", "b"}, nil},
		{"blank lines", "\n\na\n\n", 100, []string{"", "", "a", ""}, nil},
		{"exactly the limit", "12345\n12345\n", 5, []string{"12345", "12345"}, nil},
		{"one over the limit", "12345\n123456\n1\n", 5, []string{"12345", "1"}, []int64{6}},
		{"handed over", "a\n" + long + "\nb\n" + long + "\n", 1 << 20, []string{"a", long, "b", long}, nil},
		{"huge over the limit", "a\n" + huge + "\nb\n", 64 << 10, []string{"a", "b"}, []int64{300 << 10}},
		{"huge over the limit, no newline", "a\n" + huge, 64 << 10, []string{"a"}, []int64{300 << 10}},
		{"huge twice", huge + "\n" + huge + "\nz\n", 64 << 10, []string{"z"}, []int64{300 << 10, 300 << 10}},
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r },
		"bytes": iotest.OneByteReader,
		"half":  iotest.HalfReader,
		"eof":   iotest.DataErrReader,
	}
	for _, test := range tests {
		for name, wrap := range readers {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				lines, overlong := readAll(t, wrap(strings.NewReader(test.in)), test.max)
				if strings.Join(lines, "|") != strings.Join(test.lines, "|") || len(lines) != len(test.lines) {
					t.Errorf("%d lines, want %d", len(lines), len(test.lines))
				}
				if len(overlong) != len(test.overlong) {
					t.Fatalf("overlong %v, want %v", overlong, test.overlong)
				}
				for i := range overlong {
					if overlong[i] != test.overlong[i] {
						t.Errorf("overlong %v, want %v", overlong, test.overlong)
					}
				}
			})
		}
	}
}

func TestOverlongLineKeepsItsEnds(t *testing.T) {
	in := `{"id":7,` + strings.Repeat(" ", 200<<10) + `"end":1}` + "\n"
	l, err := newLineReader(strings.NewReader(in), 1000).next()
	if err != nil || !l.overlong {
		t.Fatalf("%+v, %v", l, err)
	}
	if !bytes.HasPrefix(l.data, []byte(`{"id":7,`)) || !bytes.HasSuffix(l.tail, []byte(`"end":1}`)) {
		t.Errorf("head %.20q, tail %.20q", l.data, l.tail)
	}
	if len(l.data) > keptHead || len(l.tail) > keptTail {
		t.Errorf("kept %d and %d bytes", len(l.data), len(l.tail))
	}
}

// An owned line stays as it was while the reader goes on.
func TestOwnedLinesAreNotOverwritten(t *testing.T) {
	long := strings.Repeat("x", handOver+1)
	reader := newLineReader(strings.NewReader(long+"\n"+strings.Repeat("short\n", 50_000)), 1<<20)
	first, err := reader.next()
	if err != nil || !first.owned {
		t.Fatalf("owned %v, %v", first.owned, err)
	}
	for {
		if _, err := reader.next(); err != nil {
			break
		}
	}
	if string(first.data) != long {
		t.Error("the line was overwritten")
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), 2)
	f.Add([]byte(strings.Repeat("z", 70_000)+"\nq\n"), 9000)
	f.Fuzz(func(t *testing.T, in []byte, max int) {
		if max < 1 || max > 1<<20 {
			return
		}
		var want []string
		over := 0
		text := strings.TrimSuffix(string(in), "\n")
		if len(in) > 0 {
			for _, s := range strings.Split(text, "\n") {
				if len(s) > max {
					over++
				} else {
					want = append(want, s)
				}
			}
		}
		if strings.HasSuffix(string(in), "\n") || len(in) == 0 {
			// Every line is ended: nothing to adjust.
		} else if text == "" || strings.HasSuffix(text, "\n") {
			want = want[:len(want)-1] // an empty rest is no line
		}
		lines, overlong := readAll(t, iotest.HalfReader(bytes.NewReader(in)), max)
		if strings.Join(lines, "|") != strings.Join(want, "|") || len(overlong) != over {
			t.Fatalf("lines %q, want %q; overlong %v, want %d", lines, want, overlong, over)
		}
	})
}
