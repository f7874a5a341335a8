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

// numbered returns n lines of 10 characters and 5 tokens, their ends included.
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
	want := "[… 9,980 of 10,000 lines, 99,800 characters left out …]"
	if got.Stdout[12] != want || cut != (leftOut{9980, 99800}) {
		t.Errorf("got %q and %+v left out, want %q", got.Stdout[12], cut, want)
	}
}

// TestShortenAroundADroppedEnd: what the session did not keep counts, too, where its
// mark stays, and in a stream that is not shortened.
func TestShortenAroundADroppedEnd(t *testing.T) {
	const mark = "[... 999 bytes left out ...]"
	r := &broker.Result{
		Stdout: append(numbered(500), mark), Stderr: []string{mark, "e"},
		Dropped: [2]broker.Dropped{{Lines: 9500, Characters: 90000}, {Lines: 7, Characters: 70}},
	}
	got, cut := shorten(r, 400)
	if !slices.ContainsFunc(got.Stdout, func(line string) bool { return strings.Contains(line, " of 10,000 lines, ") }) {
		t.Errorf("got %q, want a mark that says of how many lines", got.Stdout)
	}
	if cut.lines <= 9507 || cut.lines >= 10007 || cut.characters <= 90070 {
		t.Errorf("got %+v left out, want all that was dropped, and a part of 500 lines", cut)
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
		{"fits", numbered(10), nil, 50, numbered(10), nil, leftOut{}},
		{"the middle goes", numbered(1000), nil, 50,
			append(append(numbered(6), "[… 990 of 1,000 lines, 9,900 characters left out …]"), numbered(1000)[996:]...), nil, leftOut{990, 9900}},
		{"errors get a quarter", numbered(1000), numbered(1000), 200,
			append(append(numbered(18), "[… 970 of 1,000 lines, 9,700 characters left out …]"), numbered(1000)[988:]...),
			append(append(numbered(6), "[… 990 of 1,000 lines, 9,900 characters left out …]"), numbered(1000)[996:]...), leftOut{1960, 19600}},
		{"errors get what output leaves", numbered(10), numbered(1000), 200, numbered(10),
			append(append(numbered(18), "[… 970 of 1,000 lines, 9,700 characters left out …]"), numbered(1000)[988:]...), leftOut{970, 9700}},
		{"a long line", []string{long}, nil, 1000,
			[]string{strings.Repeat("é", 600) + "…", "[… 4,000 characters left out …]", "…" + strings.Repeat("é", 400)}, nil, leftOut{0, 4000}},
		{"the line between long ones", []string{long, "short", long}, nil, 1000,
			[]string{strings.Repeat("é", 600) + "…", "[… 1 of 3 lines, 9,006 characters left out …]", "…" + strings.Repeat("é", 400)}, nil, leftOut{1, 9006}},
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
		})
	}
}

func TestShortenCountsBytesAndNotes(t *testing.T) {
	r := &broker.Result{Stdout: numbered(1000), Truncated: &broker.Truncated{Stdout: 5}, Notes: []string{"short", strings.Repeat("né ", 3000)}}
	got, _ := shorten(r, 1000)
	missing := int64(0)
	for i, line := range got.Stdout {
		if strings.HasPrefix(line, "[…") {
			missing = 10 * int64(1000-(len(got.Stdout)-1))
			got.Stdout = append(got.Stdout[:i], got.Stdout[i+1:]...)
			break
		}
	}
	if missing == 0 || got.Truncated.Stdout != 5+missing || r.Truncated.Stdout != 5 {
		t.Errorf("truncated by %d bytes, the original by %d; want %d and 5", got.Truncated.Stdout, r.Truncated.Stdout, 5+missing)
	}
	if n := got.Notes[1]; tokens(n) > 100 || !strings.HasSuffix(n, " characters left out …]") || got.Notes[0] != "short" {
		t.Errorf("got notes %.80q…, want the second one shortened to 83 tokens", got.Notes)
	}
}

// TestShortenNamesFewFiles: code chooses the paths of its files, so they count as its
// output does.
func TestShortenNamesFewFiles(t *testing.T) {
	r := &broker.Result{Status: broker.Success, Stdout: []string{"done"}}
	for i := range 200 {
		r.Artifacts = append(r.Artifacts, broker.Artifact{Path: strings.Repeat("x.", 50*i), Size: 1})
	}
	got, cut := shorten(r, 10000)
	if len(got.Artifacts) != 5 || len(r.Artifacts) != 200 || cut != (leftOut{}) { // the sixth would need 500 of the 1250 tokens
		t.Errorf("%d files of %d named, %+v left out; want 5 of 200 and nothing", len(got.Artifacts), len(r.Artifacts), cut)
	}
	if diff := cmp.Diff([]string{"more new files that are not named here: 195"}, got.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}
}

func TestNotesAreBoundedInSum(t *testing.T) {
	r := &broker.Result{}
	for range 50 {
		r.Notes = append(r.Notes, strings.Repeat("é", 500))
	}
	short, cut := shorten(r, 10000)
	last := short.Notes[len(short.Notes)-1]
	if len(short.Notes) != 6 || last != "more notes that are left out: 45" || cut.characters != 45*500 {
		t.Errorf("got %d notes, the last %q, %+v left out; want 5 and one that says so", len(short.Notes), last, cut)
	}
	if len(r.Notes) != 50 {
		t.Error("the result itself was changed")
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestTheWholeOutputIsNamed: an answer that was shortened says where all of it is, and
// it is there.
func TestTheWholeOutputIsNamed(t *testing.T) {
	s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), AnswerTokens: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{server: s}
	text, _ := c.answerOf("x", &broker.Result{Status: broker.Success, Session: "work", Cell: 7, Stdout: numbered(10000)})
	const uri = "sallyport://output/work/7"
	for _, want := range []string{"runtime.output(-1)", uri, "`sallyport sessions logs work`"} {
		if !strings.Contains(text, want) {
			t.Errorf("the answer does not name %s: %.300s", want, text)
		}
	}
	list, _ := writtenBy{c}.List(t.Context())
	if len(list) != 1 || list[0].URI != uri {
		t.Errorf("resources %+v, want %s", list, uri)
	}
	if content, err := (writtenBy{c}).Open(t.Context(), uri); err != nil || content.Size != int64(len("all of work")) {
		t.Errorf("got %+v, %v", content, err)
	}
	for _, bad := range []string{"x", outputURI, outputURI + "work", outputURI + "work/x", outputURI + "work/8", outputURI + "work/-1"} {
		if _, err := (writtenBy{c}).Open(t.Context(), bad); err == nil {
			t.Errorf("%s can be read", bad)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("a\nb\nc", "d", "e", "n", false)
	f.Add(strings.Repeat("x\n", 5000), "é\xff", "é", "\x00", true)
	f.Add(strings.Repeat("\"\\\x01", 5000), strings.Repeat("漢", 3000), strings.Repeat("e ", 5000), strings.Repeat("n ", 5000), true)
	f.Fuzz(func(t *testing.T, out, err, failure, note string, unfolded bool) {
		const limit = 1000
		r := &broker.Result{
			Status: broker.Failed, Cell: 1, Stdout: strings.Split(out, "\n"), Stderr: strings.Split(err, "\n"), Summary: failure, Error: failure,
			Artifacts: []broker.Artifact{{Path: note, Size: 1}}, Notes: []string{note, out},
		}
		for _, config := range []Config{{}, {Structured: StructuredAlways}, {Output: TOON}} {
			config.Executor, config.Logger, config.AnswerTokens, config.Unfolded = &stubExecutor{}, slog.New(slog.DiscardHandler), limit, unfolded
			s, problem := New(config)
			if problem != nil {
				t.Fatal(problem)
			}
			text, structured := (&conn{server: s}).answerOf("mcp-inspector", r)
			if n := cost(text, structured, config.Structured == StructuredAlways, limit); n > limit {
				t.Errorf("%+v: got %d tokens, want at most %d", config, n, limit)
			}
			if utf8.ValidString(out) && utf8.ValidString(err) && utf8.ValidString(failure) && utf8.ValidString(note) && !utf8.ValidString(text) {
				t.Error("a character was cut in two")
			}
		}
	})
}
