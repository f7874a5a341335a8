package vectors

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// piecesOf names the pieces of a text.
func piecesOf(text string) []string {
	t := embedded()
	out := []string{}
	t.pieces(text, func(row int) { out = append(out, t.piece(row)) })
	return out
}

// TestPiecesAsTheModelsTokenizer compares with what the sentence model's own
// tokenizer makes of the same texts.
func TestPiecesAsTheModelsTokenizer(t *testing.T) {
	f, err := os.Open("testdata/pieces.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		var want struct {
			Text   string   `json:"text"`
			Pieces []string `json:"pieces"`
		}
		if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if got := piecesOf(want.Text); !slices.Equal(got, want.Pieces) {
			t.Errorf("pieces of %q:\n got %q\nwant %q", want.Text, got, want.Pieces)
		}
	}
	if n < 90 {
		t.Errorf("only %d texts compared", n)
	}
	// There, these mean the tokens; here a text is only text.
	if got, want := piecesOf("[SEP]"), []string{"[", "sep", "]"}; !slices.Equal(got, want) {
		t.Errorf("pieces of [SEP] are %q", got)
	}
}

// TestTable holds the embedded table to its form: every piece is found where
// it stands, whether it begins a word or goes on one.
func TestTable(t *testing.T) {
	tab := embedded()
	if tab.count < 29_000 || tab.count > 30_522 {
		t.Fatalf("%d rows", tab.count)
	}
	if tab.unknown < 0 {
		t.Fatal("no [UNK]")
	}
	for row := range tab.count {
		piece := tab.piece(row)
		if got := tab.find(piece); got != row {
			t.Fatalf("%q stands in row %d and is found in %d", piece, row, got)
		}
		if rest, ok := strings.CutPrefix(piece, "##"); ok {
			h := goesOn
			for i := range len(rest) {
				h = h.and(rest[i])
			}
			if tab.row(h, true, rest) != row {
				t.Fatalf("%q is not found as going on a word", piece)
			}
		}
		for i := 0; i < Dim/2; i++ {
			if b := tab.numbers[row*Dim/2+i]; b&15 == 0 || b>>4 == 0 {
				t.Fatalf("%q has a number of -8", piece)
			}
		}
	}
	for _, absent := range []string{"", "##", "zzzzzz", "\xff"} {
		if tab.find(absent) >= 0 {
			t.Errorf("%q is found", absent)
		}
	}
}

func TestLikeness(t *testing.T) {
	like := func(a, b string) float64 {
		v, w := Of(a), Of(b)
		return Likeness(&v, &w)
	}
	for _, c := range []struct{ text, near, far string }{
		{"remove a file", "delete documents", "send an email"},
		{"What will the weather be tomorrow?", "forecast of rain and temperature", "list open issues"},
		{"book a flight to Paris", "airline tickets", "memory usage of a process"},
		{"show me who changed this line", "history of revisions", "convert currency"},
	} {
		if near, far := like(c.text, c.near), like(c.text, c.far); near < far+.1 {
			t.Errorf("%q is like %q by %.2f and like %q by %.2f", c.text, c.near, near, c.far, far)
		}
	}
	if got := like("send an email", "Send  AN e\u0301mail"); math.Abs(got-1) > 1e-9 {
		t.Errorf("case, accents and spaces change a vector: %v", got)
	}
	for _, nothing := range []string{"", "   ", "\U000F0000"} {
		if got := like(nothing, "a file"); got != 0 {
			t.Errorf("%q is like a file by %v", nothing, got)
		}
	}
}

// TestVectorsAreTheSameEverywhere pins what the integers come to.
func TestVectorsAreTheSameEverywhere(t *testing.T) {
	v, w := Of("Read the whole content of a file"), Of("read_text_file: Read the complete contents of a file as text.")
	if got := Likeness(&v, &w); math.Float64bits(got) != wantLikeness {
		t.Errorf("likeness is %v (%#x)", got, math.Float64bits(got))
	}
}

// wantLikeness is what the table of this commit gives.
const wantLikeness = 0x3fe9b49d41cfd339

func TestKnown(t *testing.T) {
	for word, want := range map[string]bool{"file": true, "schedule": true, "shedule": false, "": false} {
		if Known(word) != want {
			t.Errorf("Known(%q) is %v", word, !want)
		}
	}
}

// FuzzOf: any text has a vector whose numbers are in bounds, and the pieces of
// a text are the text's own letters.
func FuzzOf(f *testing.F) {
	for _, s := range []string{"", "read_file", "Crème brûlée", "日本語", "a\x00b\xff", strings.Repeat("x", 300), "##ing"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := Of(text)
		if l := Likeness(&v, &v); l != 0 && math.Abs(l-1) > 1e-9 {
			t.Errorf("%q is like itself by %v", text, l)
		}
		letters := 0
		for _, p := range piecesOf(text) {
			if p != "[UNK]" {
				letters += utf8.RuneCountInString(strings.TrimPrefix(p, "##"))
			}
		}
		// Decomposing makes at most some letters more of one.
		if limit := 20 * (utf8.RuneCountInString(text) + 1); letters > limit {
			t.Errorf("%q has pieces of %d letters", text, letters)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	for b.Loop() {
		Of("Can you help me find the best route to get from London to Edinburgh by public transportation?")
	}
}

func BenchmarkLikeness(b *testing.B) {
	v, w := Of("read a file"), Of("write a file")
	for b.Loop() {
		Likeness(&v, &w)
	}
}
