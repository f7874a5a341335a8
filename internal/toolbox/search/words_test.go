package search

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func split(text string) []string {
	out := []string{}
	words(text, func(w string) { out = append(out, w) })
	return out
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		" \t\n.,;":                  "",
		"read_text_file":            "read text file",
		"readTextFile":              "read text file",
		"ReadTextFile":              "read text file",
		"HTTPServer":                "http server",
		"parseHTTPResponse2":        "parse http response2",
		"getS3Bucket":               "get s3 bucket",
		"k8s-pods/list.all":         "k8s pods list all",
		"XML":                       "xml",
		"A":                         "a",
		"aB":                        "a b",
		"API_KEY":                   "api key",
		"user's e-mail":             "user s e mail",
		"Crème Brûlée":              "creme brulee",
		"ÉcoleMaternelle":           "ecole maternelle",
		"Straße":                    "straße",
		"读取文件":                      "读取 取文 文件",
		"读":                         "读",
		"file文件name":                "file 文件 name",
		"ファイルを読む":                   "ファ ァイ イル ルを を読 読む",
		"Привет, мир":               "привет мир",
		"a\xffb":                    "a b",
		"\u200bzero\u200dwidth":     "zero width",
		strings.Repeat("x", 1000):   strings.Repeat("x", maxWord),
		"mixed 12 numbers 3.14 v2x": "mixed 12 numbers 3 14 v2x",
	} {
		if got := strings.Join(split(text), " "); got != want {
			t.Errorf("words of %q are %q, want %q", text, got, want)
		}
	}
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"readTextFile", "HTTPServer2", "é", "\xff", "文件a文", "ǅ", strings.Repeat("é", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, w := range split(text) {
			if w == "" || utf8.ValidString(text) && !utf8.ValidString(w) {
				t.Errorf("%q has the word %q", text, w)
			}
		}
	})
}

// TestStemsAreThoseOfTheTable: the table of neighbours was made with another
// implementation of the same rules.
func TestStemsAreThoseOfTheTable(t *testing.T) {
	for _, word := range []string{
		"deleting", "deletion", "scheduled", "schedules", "repositories", "directory", "files", "queries",
		"commits", "communication", "generously", "skies", "dying", "exceeding", "national",
	} {
		if neighboursOf(stem(word)).row < 0 {
			t.Errorf("the stem of %q, %q, is not in the table", word, stem(word))
		}
	}
	if got := stem("überprüfung"); got != "überprüfung" {
		t.Errorf("a word of another alphabet has the stem %q", got)
	}
}

func TestNeighbourTable(t *testing.T) {
	n := neighbourCount()
	if n < 5000 {
		t.Fatalf("%d stems", n)
	}
	for row := range n {
		stem, last := tableStem(row), 101
		if row > 0 && tableStem(row-1) >= stem {
			t.Fatalf("%q stands after %q", stem, tableStem(row-1))
		}
		if got := neighboursOf(stem); got.row != row {
			t.Fatalf("%q stands in row %d and is found in %d", stem, row, got.row)
		}
		neighboursOf(stem).each(func(near string, likeness int) {
			if near == stem || likeness > last || likeness < 1 {
				t.Errorf("%q has the neighbour %q of %d after %d", stem, near, likeness, last)
			}
			last = likeness
		})
	}
	if neighboursOf("nosuchstem").row >= 0 || neighboursOf("").row >= 0 {
		t.Error("what is not in the table is found")
	}
}

func TestParts(t *testing.T) {
	known := strings.Fields("web scraper air quality forecast port portfolio folio pilot key word keyword fore cast")
	spoken := func(w string) bool { return slices.Contains(known, w) }
	for word, want := range map[string]string{
		"webscraper":             "web scraper",
		"airqualityforecast":     "air quality forecast",
		"portfoliopilot":         "portfolio pilot",
		"forecast":               "fore cast",
		"keyword":                "key word",
		"unknownword":            "",
		"webscrapers":            "",
		"short":                  "",
		"":                       "",
		strings.Repeat("web", 9): strings.Join(slices.Repeat([]string{"web"}, 9), " "),
		strings.Repeat("w", 99):  "",
	} {
		if got := strings.Join(parts(word, spoken), " "); got != want {
			t.Errorf("parts of %q are %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"file", "file", 0}, {"fiel", "file", 1}, {"fil", "file", 1}, {"files", "file", 1}, {"fole", "file", 1},
		{"schedule", "shedul", 2}, {"abcdef", "badcfe", 3}, {"", "abc", 3}, {"repository", "repositroy", 1},
	} {
		for limit := range 5 {
			got, back := distance(c.a, c.b, limit), distance(c.b, c.a, limit)
			if c.want <= limit && (got != c.want || back != c.want) || c.want > limit && (got <= limit || back <= limit) {
				t.Errorf("distance of %q and %q, limit %d: %d and %d, want %d", c.a, c.b, limit, got, back, c.want)
			}
		}
	}
	if distance(strings.Repeat("a", 99), "a", 2) <= 2 {
		t.Error("a long word is near a short one")
	}
}

func TestMisspelt(t *testing.T) {
	x := New([]Doc{{Name: "repository"}, {Name: "rest"}, {Name: "west"}, {Name: "calendar"}})
	for typo, want := range map[string]string{
		"repositry": "repositori", "repsoitori": "repositori", "clendar": "calendar", "claendar": "calendar", "zest": "rest west",
		"cat": "", "kalenda": "", "completely": "",
	} {
		got := []string{}
		for _, a := range x.misspelt(typo) {
			for stem, term := range x.terms {
				if term == a.term {
					got = append(got, stem)
				}
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%q is taken for %q, want %q", typo, got, want)
		}
	}
}
