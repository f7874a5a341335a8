package terminal

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

var texts = []struct{ name, in, want string }{
	{"text", "a\tb\nä€😀\n", "a\tb\nä€😀\n"},
	{"emoji made of several", "👩‍🔬 ❤️\n", "👩‍🔬 ❤️\n"},
	{"colours", "\x1b[31mred\x1b[0m \x1b[1;38;5;8mgrey\x1b[m \x1b[38;2;1;8;3mx\x1b[0m", "\x1b[31mred\x1b[0m \x1b[1;38;5;8mgrey\x1b[m \x1b[38;2;1;8;3mx\x1b[0m"},
	{"clipboard", "\x1b]52;c;aGk=\a", `\x1b]52;c;aGk=\x07`},
	{"title", "\x1b]0;x\x1b\\", `\x1b]0;x\x1b\`},
	{"cursor and screen", "\x1b[2J\x1b[1A\x1b[Kx", `\x1b[2J\x1b[1A\x1b[Kx`},
	{"device control", "\x1bP$q\"p\x1b\\", `\x1bP$q"p\x1b\`},
	{"reset", "\x1bc", `\x1bc`},
	{"private colours", "\x1b[?5m\x1b[>4m", `\x1b[?5m\x1b[>4m`},
	{"concealed", "\x1b[8mx\x1b[0;8m", `\x1b[8mx\x1b[0;8m`},
	{"C1", "\u009b2J\u009d52;c;x\u009c", `\u{9b}2J\u{9d}52;c;x\u{9c}`},
	{"C1 as bytes", "\x9b2J\xff", `\x9b2J\xff`},
	{"turned direction", "a\u202eb\u2066c\u200b", `a\u{202e}b\u{2066}c\u{200b}`},
	{"tags", "a\U000e0041", `a\u{e0041}`},
	{"back", "ab\b\x7f\a\x00", `ab\x08\x7f\x07\x00`},
	{"over the line", "10%\r20%\r\ndone\r", "10%\n20%\ndone\n"},
	{"unfinished", "x\x1b[3", `x\x1b[3`},
	{"too long", "\x1b[" + strings.Repeat("1;", 100) + "m", `\x1b[` + strings.Repeat("1;", 100) + "m"},
}

// TestSplits: every text comes out the same, however its writes are cut.
func TestSplits(t *testing.T) {
	for _, tt := range texts {
		for size := 1; size <= len(tt.in); size++ {
			var b bytes.Buffer
			w := New(&b)
			for rest := []byte(tt.in); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				part := rest[:min(size, len(rest))]
				if n, err := w.Write(part); n != len(part) || err != nil {
					t.Fatalf("%s: wrote %d, %v", tt.name, n, err)
				}
			}
			w.Flush()
			if got := b.String(); got != tt.want {
				t.Errorf("%s, %d bytes at a time: got %q, want %q", tt.name, size, got, tt.want)
			}
		}
	}
}

// TestColoursEnd: the program's colours are not the shell's.
func TestColoursEnd(t *testing.T) {
	var b bytes.Buffer
	w := New(&b)
	_, _ = w.Write([]byte("\x1b[31mred"))
	w.Flush()
	if got, want := b.String(), "\x1b[31mred\x1b[0m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzWriter(f *testing.F) {
	for _, tt := range texts {
		f.Add([]byte(tt.in), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var b bytes.Buffer
		w := New(&b)
		cut = min(max(cut, 0), len(in))
		_, _ = w.Write(in[:cut])
		_, _ = w.Write(in[cut:])
		w.Flush()
		out := b.Bytes()
		for i := 0; i < len(out); {
			if n, ok := colour(out[i:]); n > 0 && ok {
				i += n
				continue
			}
			r, size := utf8.DecodeRune(out[i:])
			if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e {
				t.Fatalf("%q lets %q through", in, r)
			}
			i += size
		}
	})
}
