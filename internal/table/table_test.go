package table_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/table"
)

func TestWrite(t *testing.T) {
	for _, tt := range []struct {
		name   string
		width  int
		indent int
		head   []string
		rows   [][]string
		want   string
	}{
		{"nothing", 80, 0, nil, nil, ""},
		{"fits", 80, 0, []string{"NAME", "STATE"}, [][]string{{"a", "ready"}, {"longer", ""}}, "NAME    STATE\na       ready\nlonger\n"},
		{"a pipe has no width", 0, 0, []string{"NAME", "WHY"}, [][]string{{"a", strings.Repeat("word ", 100) + "end"}}, "NAME  WHY\na     " + strings.Repeat("word ", 100) + "end\n"},
		{"the widest column wraps", 30, 0, []string{"NAME", "WHY", "FROM"}, [][]string{{"alpha", "it is too long for this terminal", "file"}, {"b", "short", "x"}},
			"NAME   WHY                FROM\nalpha  it is too long     file\n       for this terminal\nb      short              x\n"},
		{"a long word breaks", 24, 0, nil, [][]string{{"a", "/home/someone/a/very/long/path"}}, "a  /home/someone/a/very/\n   long/path\n"},
		{"two wide columns share", 34, 0, nil, [][]string{{strings.Repeat("a", 40), strings.Repeat("b", 40)}},
			"aaaaaaaaaaaaaaaa  bbbbbbbbbbbbbbbb\naaaaaaaaaaaaaaaa  bbbbbbbbbbbbbbbb\naaaaaaaa          bbbbbbbb\n"},
		{"wide characters", 0, 0, []string{"NAME", "X"}, [][]string{{"日本", "1"}, {"é", "2"}, {"e\u0301", "3"}, {"abcd", "4"}}, "NAME  X\n日本  1\né     2\ne\u0301     3\nabcd  4\n"},
		{"wide characters wrap", 18, 0, nil, [][]string{{"a", "日本語日本語日本語"}}, "a  日本語日本語日\n   本語\n"},
		{"indent", 20, 2, nil, [][]string{{"tool", "does a thing well"}}, "  tool  does a thing\n        well\n"},
		{"too narrow for all", 8, 0, nil, [][]string{{"abcdefghijkl", "abcdefghijkl"}}, "abcdefghij  abcdefghij\nkl          kl\n"},
		{"an empty column", 0, 0, []string{"A", "", "C"}, [][]string{{"1", "", "3"}}, "A  C\n1  3\n"},
	} {
		out := table.Table{Head: tt.head, Width: tt.width, Indent: tt.indent}
		for _, r := range tt.rows {
			out.Row(r...)
		}
		var b strings.Builder
		if err := out.Write(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestDrop(t *testing.T) {
	out := table.Table{Head: []string{"A", "B"}, Width: 20}
	out.Row("1", strings.Repeat("x", 30))
	if out.Fits() {
		t.Error("the table fits, want that it does not")
	}
	out.Drop()
	var b strings.Builder
	if err := out.Write(&b); err != nil || !out.Fits() || b.String() != "A\n1\n" {
		t.Errorf("got %q (%v)", b.String(), err)
	}
}

// FuzzWrite: nothing but spaces and line breaks is lost or added, and lines fit
// where columns can be narrow enough.
func FuzzWrite(f *testing.F) {
	f.Add("a word", "日本語 x", 30)
	f.Fuzz(func(t *testing.T, a, b string, width int) {
		a, b = strings.Join(strings.Fields(a), " "), strings.Join(strings.Fields(b), " ")
		out := table.Table{Width: width}
		out.Row(a, b)
		var text strings.Builder
		if err := out.Write(&text); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(text.String(), "\n") {
			if width >= 24 && table.Columns(line) > width {
				t.Errorf("%q, %q: %q is wider than %d", a, b, line, width)
			}
		}
	})
}
