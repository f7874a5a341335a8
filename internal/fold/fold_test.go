package fold

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFinalState(t *testing.T) {
	var progress strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&progress, "\r%3d%%|%-10s| %d/2000 [00:01<00:00]", i/20, strings.Repeat("#", i/200), i+1)
	}
	const last = " 99%|######### | 2000/2000 [00:01<00:00]"
	for _, tt := range []struct {
		name, in, want string
		states         int
	}{
		{"nothing to do", "a\tb\nä€😀\n", "a\tb\nä€😀\n", 0},
		{"progress", progress.String(), last, 1999},
		{"progress, then text", "begin\n" + progress.String() + "\nend", "begin\n" + last + "\nend", 1999},
		{"overwritten", "a\rb", "b", 1},
		{"a shorter state", "loading\rdone", "doneing", 1},
		{"erased to the end", "loading\rdone\x1b[K", "done", 1},
		{"erased first", "loading\r\x1b[Kdone", "done", 1},
		{"erased whole", "loading\x1b[2K\rdone", "done", 1},
		{"erased whole, column 1", "loading\x1b[2K\x1b[1Gdone", "done", 1},
		{"erased, in its place", "abc\x1b[2Kd", "   d", 1},
		{"erased before", "abcd\x1b[2D\x1b[1Kx", "  xd", 1},
		{"erased with blanks", "loading\r       \rok", "ok", 1},
		{"the same text twice", "abc\rabc", "abc", 0},
		{"CRLF", "a\r\nb\r\n", "a\nb\n", 0},
		{"CR CR LF", "a\r\r\nb", "a\nb", 0},
		{"CR at the end", "50%\r", "50%", 0},
		{"CR at the beginning", "\ra\n\rb", "a\nb", 0},
		{"only CR", "\r\r\r", "", 0},
		{"spinner", "|\b/\b-\b\\\bdone", "done", 4},
		{"backspace at the beginning", "\b\bab\bc", "ac", 1},
		{"bold of troff", "N\bNA\bAM\bM", "NAM", 0},
		{"underlined by troff", "_\bu_\bn", "un", 0},
		{"wide characters", "下载中 50%\r完成\x1b[K", "完成", 1},
		{"half a wide character", "下载\rx", "x 载", 1},
		{"two bars", "a 0%\nb 0%\x1b[1A\ra 50%\n\rb 50%\x1b[A\ra 99%\n\rb 99%\n", "a 99%\nb 99%\n", 4},
		{"layers", "l1 wait\nl2 wait\n\x1b[2A\x1b[2K\rl1 half\x1b[2B\r\x1b[1A\x1b[2K\rl2 half\x1b[1B\r\x1b[2A\x1b[2K\rl1 done\x1b[2B\r", "l1 done\nl2 half\n", 3},
		{"live display", "x\n1\n2\x1b[2K\x1b[1A\x1b[2K\r3\n4", "x\n3\n4", 2},
		{"up too far", "a\x1b[99Ab", "ab", 0},
		{"rows erased below", "a\nb\nc\x1b[2A\r\x1b[Jz", "z", 3},
		{"save and restore", "a\x1b7\nbar 1\x1b8\nbar 2\x1b[u\x1b[0m", "a\nbar 2", 1},
		{"restore nothing", "a\nb\x1b8c\x1b[ud", "a\nbcd", 0},
		{"columns", "a\x1b[10Gb\x1b[3Cc", "a        b   c", 0},
		{"clear keeps", "page 1\x1b[H\x1b[2J\x1b[3Jpage 2\x1b[2J\x1b[Hpage 3", "page 1\npage 2\npage 3", 0},
		{"animation", "text\n\x1b[H1 1\n1 1\n\x1b[H2 2\n2 2\n\x1b[H3 3\n3 3\n", "text\n3 3\n3 3\n", 4},
		{"animation from the beginning", "\x1b[H1 1\n1 1\x1b[H2 2\n2 2", "2 2\n2 2", 2},
		{"places", "\x1b[2J\x1b[1;1Hone\x1b[2;1Htwo\x1b[4;3Hfour", "one\ntwo\n\n  four", 0},
		{"next line", "a\x1b[Eb", "a\nb", 0},
		{"colours", "\x1b[31mred\x1b[0m \x1b[1;38;5;8mgrey\x1b[m\x1b(B\x0f \x1b[38:2::1:2:3mx", "red grey x", 0},
		{"title", "\x1b]0;title\atext\x1b]2;x\x1b\\!", "text!", 0},
		{"hyperlink", "see \x1b]8;;https://e.com/a?b\x1b\\here\x1b]8;;\x1b\\.", "see here.", 0},
		{"string without an end", "\x1b]0;text\nnext", "0;text\nnext", 0},
		{"string without an end, then colours", "\x1b]0;text\x1b[1m!", "0;text!", 0},
		{"a picture", "\x1bPq#0~~\x1b\\a\x1b_Gf=100;AAAA\x1b\\b\x1b^x\ac", "abc", 0},
		{"split sequence", "a\x1b[38;5\nb\x1b", "a\nb", 0},
		{"too long sequence", "\x1b[" + strings.Repeat("1", 70) + "x", strings.Repeat("1", 70) + "x", 0},
		{"broken sequence", "\x1b[1é", "é", 0},
		{"private", "\x1b[?25l\x1b[?1049h\x1b[>4;1ma\x1b[?25h\x1b=\x1b>", "a", 0},
		{"C1", "\u009b31mred\u009b0m\u009d0;title\u009c.\u009bK", "red.", 0},
		{"wrong encoding", "â\u0080\u009dÃ\u009bx", "â\u0080\u009dÃ\u009bx", 0},
		{"other characters", "a\x00b\x1fc\x0cd\x7f\a", "a␀b␟c␌d␡", 0},
	} {
		lines, left := Lines(strings.Split(tt.in, "\n"), Stdout)
		if got := strings.Join(lines, "\n"); got != tt.want || left.States != tt.states {
			t.Errorf("%s: got %q and %d states, want %q and %d", tt.name, got, left.States, tt.want, tt.states)
		}
	}
}

func times(n int, lines ...string) []string { return slices.Repeat(lines, n) }

func TestRepeats(t *testing.T) {
	const font = "findfont: Font family 'SimHei' not found."
	var glyphs, epochs, files, mixed, mixedWant []string
	for i := range 50 {
		glyphs = append(glyphs, fmt.Sprintf(`/workspace/x.py:3: UserWarning: Glyph %d (\N{CJK UNIFIED IDEOGRAPH-%X}) missing from font(s) DejaVu Sans.`, 20013+i, 20013+i), "  plt.savefig('x')")
		epochs = append(epochs, fmt.Sprintf("INFO:root:epoch %d: the loss of this epoch was 0.%d", i, i))
		files = append(files, fmt.Sprintf(`x.py:3: UserWarning: Glyph %d (\N{HIRAGANA LETTER %c}) missing`, i, 'A'+i%26), "  plt.savefig('x')")
		mixed = append(mixed, font, strings.Repeat("-", i+1))
		if i == 0 {
			mixedWant = append(mixedWant, font, "[… 49 more such messages, between other lines, left out …]")
		}
		mixedWant = append(mixedWant, strings.Repeat("-", i+1))
	}
	raised := []string{"Traceback (most recent call last):", "  File x, line 1", "    raise ValueError(message)", "ValueError: a long message of an error"}
	var retries []string
	for i := range 12 {
		retries = append(append(retries, raised...), strings.Repeat("=", i+10))
	}
	for _, tt := range []struct {
		name     string
		stream   Stream
		in, want []string
		left     int
	}{
		{"nothing", Stderr, nil, nil, 0},
		{"a hundred", Stderr, append(times(100, font), "end"), []string{font, "[… 100 times in all …]", "end"}, 0},
		{"zeros", Stdout, times(100, "0"), []string{"0", "[… 100 times in all …]"}, 0},
		{"too few to say", Stdout, times(9, "0"), times(9, "0"), 0},
		{"twice", Stderr, times(2, font, font), times(1, font, "[… 4 times in all …]"), 0},
		{"a block", Stdout, append([]string{"a"}, append(times(50, "x.py:1: a warning of two lines", "  with its source"), "x.py:1: a warning of two lines")...),
			[]string{"a", "x.py:1: a warning of two lines", "  with its source", "[… these 2 lines, 50 times in all …]", "x.py:1: a warning of two lines"}, 0},
		{"a block with repetition", Stdout, times(20, "aaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaa", "b"), []string{"aaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaa", "b", "[… these 3 lines, 20 times in all …]"}, 0},
		{"empty lines", Stdout, append(times(200, ""), "x"), []string{"", "[… 200 times in all …]", "x"}, 0},
		{"numbers on stdout", Stdout, epochs, epochs, 0},
		{"numbers in a log", Stderr, epochs, epochs, 0},
		{"warnings on stdout", Stdout, glyphs, glyphs, 0},
		{"glyphs", Stderr, glyphs, append(slices.Clone(glyphs[:2]), "[… 49 more such warnings; they may differ in numbers, left out …]"), 98},
		{"named glyphs", Stderr, files, append(slices.Clone(files[:2]), "[… 49 more such warnings; they may differ in numbers, left out …]"), 98},
		{"between others", Stderr, mixed, mixedWant, 49},
		{"between others on stdout", Stdout, mixed, mixed, 0},
		{"tracebacks", Stderr, retries, retries, 0},
	} {
		got, left := Lines(tt.in, tt.stream)
		if !slices.Equal(got, tt.want) || left != (Left{Lines: tt.left}) {
			t.Errorf("%s: got %+v and\n%s\nwant %d and\n%s", tt.name, left, strings.Join(got, "\n"), tt.left, strings.Join(tt.want, "\n"))
		}
	}
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{"": "", "a b": "a b", "1%\r\x1b[32m2%\x1b[0m": "2%", "a\x1b[2J\x1b[Hb": "a b"} {
		if got := Line(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestHostile: the time for each is in proportion to its length. Otherwise they
// would take hours.
func TestHostile(t *testing.T) {
	const size = 1 << 20
	long := strings.Repeat("x", 256<<10)
	for _, unit := range []string{
		"\r", "\b", "\x1b", "\x1b[", "\x1b]", "\x1b]x", "\u009d", "\u009dx\u009b", "\x1b[2K", "\x1b[2Kx", "\x1b[1K", "\x1b[999Cx", "\x1b[9999Gx\n", "\x1b[99A\x1b[J\n",
		"\x1b[99A\r\x1b[2Kx\n\n", "\x1b[H", "\x1b[40;40Hx", "\x1b[2Jx", "\x1b[99Ex", "\x1b7\n\x1b8", "\x00", "下\b", "\n\r", "a\n", "warn 1\n", "a\nb\n", "\x1bM", "ab\ncd\nab\n", "\x1b[1",
	} {
		for _, prefix := range []string{"", long + "\r", long + "\x1b[9999C"} {
			in := prefix + strings.Repeat(unit, size/len(unit))
			lines, _ := Lines(strings.Split(in, "\n"), Stderr)
			if got := characters(lines); got > utf8.RuneCountInString(in)+1+2*blanks {
				t.Errorf("%d + %q: got %d characters of %d", len(prefix), unit, got, utf8.RuneCountInString(in))
			}
		}
	}
}

func FuzzLines(f *testing.F) {
	for _, s := range []string{"a\rb\x1b[K\n\x1b[2Ac", "\x1b]8;;x\x1b\\y\x1b]8;;\a", "\x1b7\x1b[5;5Hx\x1b8\x1b[2J\x1b[Hz", "下\b\bx\u009b1m", strings.Repeat("warning: 12\n", 100)} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(check)
}

// check folds a text, and what that comes to once more.
func check(t *testing.T, in string, stderr bool) {
	lines := strings.Split(in, "\n")
	once, _ := Lines(lines, Stream(stderr))
	text := strings.Join(once, "\n")
	switch {
	case utf8.ValidString(in) && !utf8.ValidString(text):
		t.Fatalf("%q: got %q, which is not valid UTF-8", in, text)
	case characters(once) > characters(lines)+2*blanks:
		t.Fatalf("%q: got %d characters of %d", in, characters(once), characters(lines))
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f }):
		t.Fatalf("%q: got %q, with control characters", in, text)
	case !utf8.ValidString(in) || strings.Contains(text, mark) || strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 && r < 0xa0 }):
		return // text of another encoding, or with repetition of repetition
	}
	if again, _ := Lines(once, Stream(stderr)); !slices.Equal(again, once) {
		t.Fatalf("%q: got %q, and then %q", in, once, again)
	}
}

// TestSequences checks texts that are made of what terminals obey.
func TestSequences(t *testing.T) {
	parts := []string{"a", "bc", " ", "下", "\u0301", "\r", "\b", "\n", "\t", "\x1b[", "\x1b[A", "\x1b[3B", "\x1b[5C", "\x1b[2D", "\x1b[7G", "\x1b[3;4H", "\x1b[H",
		"\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[s", "\x1b[u", "\x1b7", "\x1b8", "\x1bM", "\x1b[E", "\x1b[9F", "\x1b[31m", "\x1b]", "\x1b\\", "\a", "\x00", "\x1b", "1", ";",
		"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "a warning 1\n", strings.Repeat("x", 50)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		var in strings.Builder
		for range random.IntN(60) {
			in.WriteString(parts[random.IntN(len(parts))])
		}
		check(t, in.String(), random.IntN(2) == 0)
	}
}

func BenchmarkLines(b *testing.B) {
	var ordinary, progress []string
	for i := range 1000 {
		ordinary = append(ordinary, fmt.Sprintf("%d: a line of ordinary output of a program", i))
		progress = append(progress, strings.Repeat(fmt.Sprintf("\r%d of 1000", i), 10))
	}
	for name, lines := range map[string][]string{"one": {"1"}, "ordinary": ordinary, "progress": progress} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(characters(lines)))
			b.ReportAllocs()
			for b.Loop() {
				Lines(lines, Stderr)
			}
		})
	}
}
