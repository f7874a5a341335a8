package mcpserver

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/broker"
)

// numbered returns n lines of 10 characters, their ends included.
func numbered(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %04d", i)
	}
	return lines
}

// TestShortenWhatWasDropped: what the session did not keep counts as left out.
func TestShortenWhatWasDropped(t *testing.T) {
	const mark = "[... 999 bytes left out ...]"
	stdout := slices.Concat(numbered(500), []string{mark}, numbered(500))
	r := &broker.Result{Stdout: stdout, Dropped: [2]broker.Dropped{{Lines: 9000, Characters: 90000}}}
	got, cut := shorten(r, 100)
	want := "[… 9,990 of 10,000 lines, 99,900 characters left out …]"
	if got.Stdout[6] != want || cut != (leftOut{9990, 99900}) {
		t.Errorf("got %q and %+v left out, want %q", got.Stdout[6], cut, want)
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("é", 5000)
	tests := []struct {
		name           string
		stdout, stderr []string
		limit          int
		out, err       []string
		cut            leftOut
	}{
		{"fits", numbered(10), nil, 100, numbered(10), nil, leftOut{}},
		{"no limit", numbered(1000), nil, 0, numbered(1000), nil, leftOut{}},
		{"the middle goes", numbered(1000), nil, 100,
			append(append(numbered(6), "[… 990 of 1,000 lines, 9,900 characters left out …]"), numbered(1000)[996:]...), nil, leftOut{990, 9900}},
		{"errors get a quarter", numbered(1000), numbered(1000), 400,
			append(append(numbered(18), "[… 970 of 1,000 lines, 9,700 characters left out …]"), numbered(1000)[988:]...),
			append(append(numbered(6), "[… 990 of 1,000 lines, 9,900 characters left out …]"), numbered(1000)[996:]...), leftOut{1960, 19600}},
		{"errors get what output leaves", numbered(10), numbered(1000), 400, numbered(10),
			append(append(numbered(18), "[… 970 of 1,000 lines, 9,700 characters left out …]"), numbered(1000)[988:]...), leftOut{970, 9700}},
		{"a long line", []string{long}, nil, 1000,
			[]string{strings.Repeat("é", 600) + "…", "[… 1 of 1 lines, 4,001 characters left out …]", "…" + strings.Repeat("é", 400)}, nil, leftOut{1, 4001}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &broker.Result{Status: broker.Success, Stdout: tt.stdout, Stderr: tt.stderr}
			got, cut := shorten(r, tt.limit)
			if cut != tt.cut {
				t.Errorf("left out %+v, want %+v", cut, tt.cut)
			}
			if diff := cmp.Diff([][]string{tt.out, tt.err}, [][]string{got.Stdout, got.Stderr}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if (tt.cut == leftOut{}) != (got == r) {
				t.Errorf("the result was copied: %v, want %v", got != r, tt.cut != leftOut{})
			}
		})
	}
}

func TestShortenCountsBytesAndNotes(t *testing.T) {
	r := &broker.Result{Stdout: numbered(100), Truncated: &broker.Truncated{Stdout: 5}, Notes: []string{"short", strings.Repeat("n", 3000)}}
	got, _ := shorten(r, 100)
	if got.Truncated.Stdout != 905 || r.Truncated.Stdout != 5 {
		t.Errorf("truncated by %d bytes, the original by %d; want 905 and 5", got.Truncated.Stdout, r.Truncated.Stdout)
	}
	if n := got.Notes[1]; len(n) > maxNote+100 || !strings.HasSuffix(n, "[… 1,000 characters left out …]") || got.Notes[0] != "short" {
		t.Errorf("notes %.80q…", got.Notes)
	}
}

// TestShortenNamesFewFiles: code chooses the paths of its files, so they count as its
// output does.
func TestShortenNamesFewFiles(t *testing.T) {
	r := &broker.Result{Status: broker.Success, Stdout: []string{"done"}}
	for i := range 200 {
		r.Artifacts = append(r.Artifacts, broker.Artifact{Path: strings.Repeat("x", 100*i), Size: 1})
	}
	got, cut := shorten(r, 10000)
	if len(got.Artifacts) != 7 || len(r.Artifacts) != 200 || cut != (leftOut{}) { // 7 take 2100 + 7*30 characters
		t.Errorf("%d files of %d named, %+v left out; want 7 of 200 and nothing", len(got.Artifacts), len(r.Artifacts), cut)
	}
	if diff := cmp.Diff([]string{"more new files that are not named here: 193"}, got.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}
	r.Artifacts = r.Artifacts[:7]
	if got, _ := shorten(r, 10000); got != r {
		t.Errorf("a result that fits was copied: %+v", got)
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("a\nb\nc", "d", 3)
	f.Add(strings.Repeat("x\n", 500), "é\xff", 250)
	f.Fuzz(func(t *testing.T, out, err string, limit int) {
		limit %= 1 << 16
		r := &broker.Result{Stdout: strings.Split(out, "\n"), Stderr: strings.Split(err, "\n")}
		got, cut := shorten(r, limit)
		size := measure(got.Stdout) + measure(got.Stderr)
		const marks = 300 // what the marks take
		if limit > 0 && size > limit+marks {
			t.Errorf("%d characters of a limit of %d", size, limit)
		}
		whole := measure(r.Stdout) + measure(r.Stderr)
		if cut.characters > whole || cut == (leftOut{}) && size != whole {
			t.Errorf("left out %+v of %d, %d stay", cut, whole, size)
		}
		if utf8.ValidString(out+err) && !utf8.ValidString(strings.Join(got.Stdout, "")+strings.Join(got.Stderr, "")) {
			t.Error("a character was cut in two")
		}
	})
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestWhoGetsWhat: each client gets the output within the limit, in the form
// that it passes to its model.
func TestWhoGetsWhat(t *testing.T) {
	r := &broker.Result{Status: broker.Success, Session: "work", Cell: 7, Stdout: numbered(10000)}
	for _, tt := range []struct {
		name, client     string
		structured       Structured
		text, structures [2]int // from, to: characters
	}{
		{"unknown", "x", StructuredAuto, [2]int{11000, 13000}, [2]int{11000, 13000}},
		{"known", "claude-code", "", [2]int{1, 2100}, [2]int{24000, 25500}},
		{"always", "claude-code", StructuredAlways, [2]int{24000, 25500}, [2]int{24000, 25500}},
		{"never", "claude-code", StructuredNever, [2]int{24000, 25500}, [2]int{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), AnswerCharacters: 25000, Structured: tt.structured})
			if err != nil {
				t.Fatal(err)
			}
			c := &conn{server: s}
			text, structured := c.answerOf(tt.client, r)
			size := 0
			if structured != nil {
				size = measure(structured.Stdout)
			}
			if n := utf8.RuneCountInString(text); n < tt.text[0] || n > tt.text[1] || size < tt.structures[0] || size > tt.structures[1] {
				t.Errorf("got %d characters of text and %d of structured content, want %v and %v", n, size, tt.text, tt.structures)
			}
			const uri = "sallyport://output/work/7"
			said := text
			if structured != nil {
				said = strings.Join(structured.Notes, "\n")
			}
			for _, want := range []string{"runtime.output(-1)", uri, "`sallyport sessions logs work`"} {
				if !strings.Contains(said, want) {
					t.Errorf("the answer does not name %s: %.300s", want, said)
				}
			}
			list, _ := writtenBy{c}.List(t.Context())
			if len(list) != 1 || list[0].URI != uri {
				t.Errorf("resources %+v, want %s", list, uri)
			}
			if content, err := (writtenBy{c}).Read(t.Context(), uri); err != nil || content.Text != "all of work" {
				t.Errorf("got %+v, %v", content, err)
			}
			for _, bad := range []string{"x", outputURI, outputURI + "work", outputURI + "work/x", outputURI + "work/8", outputURI + "work/-1"} {
				if _, err := (writtenBy{c}).Read(t.Context(), bad); err == nil {
					t.Errorf("%s can be read", bad)
				}
			}
		})
	}
}

func TestNotesAreBoundedInSum(t *testing.T) {
	r := &broker.Result{}
	for range 50 {
		r.Notes = append(r.Notes, strings.Repeat("n", 1000))
	}
	short, cut := shorten(r, 25000)
	total := 0
	for _, n := range short.Notes {
		total += len(n)
	}
	last := short.Notes[len(short.Notes)-1]
	if total > maxNotes+100 || len(short.Notes) != 7 || last != "more notes that are left out: 44" || cut.characters != 44000 {
		t.Errorf("got %d notes with %d characters, the last %q, %+v left out", len(short.Notes), total, last, cut)
	}
	if len(r.Notes) != 50 {
		t.Error("the result itself was changed")
	}
	few := &broker.Result{Notes: []string{"a", "b"}}
	if got, _ := shorten(few, 1); len(got.Notes) != 2 {
		t.Errorf("got %q, want both", got.Notes)
	}
}
