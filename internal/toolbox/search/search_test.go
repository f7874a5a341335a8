package search

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var shelf = []Doc{
	{Server: "disk", Name: "read_text_file", Description: "Read the complete contents of a file as text.", ReadOnly: true,
		Arguments: []Argument{{"path", "Where the file is."}, {"head", "How many lines from the start."}}},
	{Server: "disk", Name: "write_file", Description: "Create a new file or overwrite an existing one."},
	{Server: "disk", Name: "list_directory", Description: "List what a directory contains.", ReadOnly: true},
	{Server: "disk", Name: "deleteFile", Description: "Delete a file for good."},
	{Server: "mail", Name: "sendEmail", Description: "Send an email to one or more recipients.",
		Arguments: []Argument{{"recipients", "Their addresses."}, {"subject", ""}}},
	{Server: "mail", Name: "search_inbox", Description: "Find messages.", ReadOnly: true},
	{Server: "web", Name: "webscraper", Description: "Collects the text of pages.", ReadOnly: true},
	{Server: "sky", Name: "weatherchart", Description: "Draws it.", ReadOnly: true},
	{Server: "sky", Name: "forecast", Description: "Temperature and rain of the days to come.", ReadOnly: true},
}

// found names what a search finds.
func found(x *Index, docs []Doc, query string, o Options) []string {
	names := []string{}
	for _, h := range x.Search(query, o) {
		names = append(names, docs[h.Doc].Server+"/"+docs[h.Doc].Name)
	}
	return names
}

func TestSearchFindsFirst(t *testing.T) {
	x := New(shelf)
	for _, c := range []struct {
		query, first string
		methods      []Method
	}{
		{"read a file", "disk/read_text_file", []Method{Lexical, Vectors, Both}},
		{"readTextFile", "disk/read_text_file", []Method{Lexical, Vectors, Both}},
		{"READING FILES", "disk/read_text_file", []Method{Lexical, Vectors, Both}},
		{"delete file", "disk/deleteFile", []Method{Lexical, Vectors, Both}},
		// Neighbours in meaning.
		{"erase a file", "disk/deleteFile", []Method{Vectors, Both}},
		{"folder", "disk/list_directory", []Method{Lexical, Vectors, Both}},
		{"Will it be sunny tomorrow?", "sky/forecast", []Method{Vectors, Both}},
		// Misspellings.
		{"forcast", "sky/forecast", []Method{Lexical}},
		{"recipeints", "mail/sendEmail", []Method{Lexical}},
		{"direktory", "disk/list_directory", []Method{Lexical}},
		// Written apart there and together here, or the other way round.
		{"web scraper", "web/webscraper", []Method{Lexical, Both}},
		{"chart", "sky/weatherchart", []Method{Lexical, Both}},
		{"in box", "mail/search_inbox", []Method{Lexical, Both}},
		// An argument's name, and a server's.
		{"subject", "mail/sendEmail", []Method{Lexical, Both}},
	} {
		for _, m := range c.methods {
			got := found(x, shelf, c.query, Options{Method: m})
			if len(got) == 0 || got[0] != c.first {
				t.Errorf("%q by %v finds %q, not %s first", c.query, m, got, c.first)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	x := New(shelf)
	for _, m := range []Method{Lexical, Vectors, Both} {
		all := found(x, shelf, "file", Options{Method: m})
		if got := found(x, shelf, "file", Options{Method: m, Limit: 2}); !slices.Equal(got, all[:2]) {
			t.Errorf("%v: two of %q are %q", m, all, got)
		}
		for _, name := range found(x, shelf, "file", Options{Method: m, ReadOnly: true}) {
			if strings.Contains(name, "write") || strings.Contains(name, "delete") {
				t.Errorf("%v: %s only reads", m, name)
			}
		}
		for _, name := range found(x, shelf, "file", Options{Method: m, Servers: []string{"mail", "sky"}}) {
			if strings.HasPrefix(name, "disk/") {
				t.Errorf("%v: %s is of mail or sky", m, name)
			}
		}
		if got := found(x, shelf, "file", Options{Method: m, Servers: []string{"nobody"}}); len(got) > 0 {
			t.Errorf("%v: nobody has %q", m, got)
		}
	}
	// What is filtered out changes no score.
	wide := x.Search("delete a file", Options{})
	for _, h := range x.Search("delete a file", Options{Servers: []string{"disk"}}) {
		if !slices.Contains(wide, h) {
			t.Errorf("%v is not among %v", h, wide)
		}
	}
}

// TestFewOfMany: a limit takes the first of what there is without one.
func TestFewOfMany(t *testing.T) {
	docs := many(200)
	x := New(docs)
	for _, m := range []Method{Lexical, Both} {
		all := x.Search("delete a file and send a message", Options{Method: m})
		for limit := 1; limit <= len(all)+1; limit += 3 {
			got := x.Search("delete a file and send a message", Options{Method: m, Limit: limit})
			if !slices.Equal(got, all[:min(limit, len(all))]) {
				t.Errorf("%v: the first %d are %v, want %v", m, limit, got, all[:min(limit, len(all))])
			}
		}
	}
}

// TestOddDocuments: nothing about a document is needed, and none is lost for
// being odd.
func TestOddDocuments(t *testing.T) {
	for name, docs := range map[string][]Doc{
		"none":             nil,
		"one":              {{Server: "s", Name: "read_file", Description: "Reads."}},
		"two alike":        {{Server: "s", Name: "read_file"}, {Server: "s", Name: "read_file"}},
		"empty":            {{}, {}, {Name: "read_file"}},
		"another language": {{Name: "datei_lesen", Description: "Liest eine Datei ein."}, {Name: "读取文件", Description: "读取文件的内容"}, {Name: "read_file"}},
		"not UTF-8":        {{Name: "read_file\xff", Description: "\xfe\x80 caf\xc3"}},
		"punctuation":      {{Name: "---", Description: "!!! ??? ..."}, {Name: "read/file"}},
		"long":             {{Name: strings.Repeat("x", 1<<16), Description: strings.Repeat("word ", 1<<16)}, {Name: "read_file"}},
	} {
		x := New(docs)
		if x.Len() != len(docs) {
			t.Errorf("%s: %d of %d", name, x.Len(), len(docs))
		}
		for _, m := range []Method{Lexical, Vectors, Both} {
			hits := x.Search("read file", Options{Method: m})
			if name != "none" && len(hits) == 0 {
				t.Errorf("%s: %v finds nothing", name, m)
			}
			for _, q := range []string{"", "  ", "?!", "the of and", "\xff", "\x00", strings.Repeat("many words ", 1<<12)} {
				check(t, x, q, Options{Method: m, Limit: 3})
			}
		}
	}
	x := New([]Doc{{Name: "读取文件", Description: "读取文件的内容"}, {Name: "发送邮件"}, {Name: "überprüfen"}})
	for query, want := range map[string]int{"文件": 0, "发送": 1, "uberprufen": 2, "Überprüfen": 2} {
		if hits := x.Search(query, Options{Method: Lexical}); len(hits) == 0 || hits[0].Doc != want {
			t.Errorf("%q finds %v", query, hits)
		}
	}
}

// check searches and holds the hits to what Search promises.
func check(t *testing.T, x *Index, query string, o Options) {
	t.Helper()
	hits := x.Search(query, o)
	if o.Limit > 0 && len(hits) > o.Limit {
		t.Errorf("%q: %d hits, limit %d", query, len(hits), o.Limit)
	}
	seen := map[int]bool{}
	for i, h := range hits {
		if h.Doc < 0 || h.Doc >= x.Len() || seen[h.Doc] {
			t.Errorf("%q: hit %d is document %d", query, i, h.Doc)
		}
		seen[h.Doc] = true
		if math.IsNaN(h.Score) || math.IsInf(h.Score, 0) || i > 0 && h.Score > hits[i-1].Score {
			t.Errorf("%q: hit %d has a score of %v", query, i, h.Score)
		}
	}
}

// TestEqualScores: documents of equal score stand in the order of their names,
// wherever they were in the list.
func TestEqualScores(t *testing.T) {
	docs := []Doc{
		{Server: "b", Name: "x", Description: "Reads files."}, {Server: "a", Name: "z", Description: "Reads files."},
		{Server: "a", Name: "y", Description: "Reads files."},
	}
	for range 2 {
		if got, want := found(New(docs), docs, "reading", Options{Method: Lexical}), []string{"a/y", "a/z", "b/x"}; !slices.Equal(got, want) {
			t.Errorf("found %q, want %q", got, want)
		}
		slices.Reverse(docs)
	}
}

// TestNeighboursNeverAddUp: a document that has a word and its neighbours
// scores for the word alone.
func TestNeighboursNeverAddUp(t *testing.T) {
	near := []string{}
	neighboursOf("delet").each(func(stem string, likeness int) { near = append(near, stem) })
	if !slices.Contains(near, "remov") {
		t.Fatalf("neighbours of delete are %q", near)
	}
	docs := []Doc{{Name: "a", Description: "delete"}, {Name: "b", Description: "remove"}, {Name: "c", Description: "sleep"}}
	x := New(docs)
	scores := x.lexical("delete")
	if scores[1] == 0 || scores[1] >= scores[0] || scores[2] != 0 {
		t.Errorf("scores of delete, remove and sleep are %v", scores)
	}
	if both := New(append(docs, Doc{Name: "d", Description: "delete remove"})).lexical("delete"); both[3] > both[0] {
		t.Errorf("delete and remove score %d, delete alone %d", both[3], both[0])
	}
}

// TestNamesComeFirst: who knows a tool's name need not describe it.
func TestNamesComeFirst(t *testing.T) {
	docs := []Doc{
		{Server: "tracker", Name: "list_issue_notes", Description: "List the notes of issues: list issues, list notes."},
		{Server: "tracker", Name: "list_issues", Description: "What is open."},
		{Server: "other", Name: "list_issues"},
		{Server: "other", Name: "click", Description: "Press."},
		{Server: "other", Name: "click_all", Description: "Click, click, click everything that can be clicked: a click each."},
	}
	x := New(docs)
	for query, want := range map[string]string{
		"list_issues": "list_issues", "listIssues": "list_issues", "list issues": "list_issues", "click": "click",
		"how do I call list-issues, please?": "list_issues", "other.list_issues": "list_issues", "other click": "click",
	} {
		for _, m := range []Method{Lexical, Both} {
			got := found(x, docs, query, Options{Method: m})
			if !strings.HasSuffix(got[0], "/"+want) {
				t.Errorf("%q by %v finds %q", query, m, got)
			}
		}
	}
	for _, server := range []string{"tracker", "other"} {
		if got := found(x, docs, server+"/list_issues", Options{}); got[0] != server+"/list_issues" {
			t.Errorf("%s's finds %q", server, got)
		}
	}
}

// TestRequestsWeighLess: what a request is wrapped in decides only where
// nothing else does.
func TestRequestsWeighLess(t *testing.T) {
	docs := []Doc{{Name: "help", Description: "Shows help."}, {Name: "convert", Description: "Converts a currency."}}
	x := New(docs)
	if got := found(x, docs, "please help me to convert", Options{Method: Lexical}); got[0] != "/convert" {
		t.Errorf("found %q", got)
	}
	if got := found(x, docs, "help", Options{Method: Lexical}); got[0] != "/help" {
		t.Errorf("found %q", got)
	}
}

func TestSearchesAtOnce(t *testing.T) {
	x := New(shelf)
	want := x.Search("send a file to somebody", Options{})
	done := make(chan []Hit)
	for range 8 {
		go func() { done <- x.Search("send a file to somebody", Options{}) }()
	}
	for range 8 {
		if got := <-done; !slices.Equal(got, want) {
			t.Errorf("found %v, alone %v", got, want)
		}
	}
}

func TestMethodNames(t *testing.T) {
	for _, m := range []Method{Both, Lexical, Vectors} {
		if got, ok := MethodNamed(m.String()); !ok || got != m {
			t.Errorf("%v is %v, %v by name", m, got, ok)
		}
	}
	if _, ok := MethodNamed("unknown"); ok || Method(9).String() != "unknown" || Method(-1).String() != "unknown" {
		t.Error("an unknown method has a name")
	}
}

// FuzzSearch: whatever is asked of whatever tools, the hits are as promised.
func FuzzSearch(f *testing.F) {
	for _, q := range []string{"read a file", "", "webscraper", "web scraper", "rcipients", "文件 file", "a\xffb", "THE OF", "re" + strings.Repeat("a", 100)} {
		f.Add(q, "read_file", "Reads a file.")
	}
	f.Fuzz(func(t *testing.T, query, name, description string) {
		docs := append([]Doc{{Server: name, Name: description, Description: query}, {Name: name, Description: description}}, shelf...)
		x := New(docs)
		for _, m := range []Method{Lexical, Vectors, Both} {
			check(t, x, query, Options{Method: m})
			check(t, x, description, Options{Method: m, Limit: 2, ReadOnly: true})
		}
	})
}

// many makes a catalogue of n tools of common words.
func many(n int) []Doc {
	var docs []Doc
	next := uint32(1)
	word := func() string {
		next = next*1664525 + 1013904223
		return tableStem(int(next>>8) % neighbourCount())
	}
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(word() + " ")
		}
		return b.String()
	}
	for i := range n {
		d := Doc{Server: fmt.Sprintf("server%d", i/20), Name: word() + "_" + word(), Description: text(30)}
		for range 6 {
			d.Arguments = append(d.Arguments, Argument{word(), text(12)})
		}
		docs = append(docs, d)
	}
	return docs
}

func BenchmarkSearch3000(b *testing.B) {
	x := New(many(3000))
	for _, m := range []Method{Lexical, Vectors, Both} {
		b.Run(m.String(), func(b *testing.B) {
			for b.Loop() {
				x.Search("Please find every message of last week about the quarterly report and delete the drafts", Options{Limit: 5, Method: m})
			}
		})
	}
}

func BenchmarkNew3000(b *testing.B) {
	docs := many(3000)
	for b.Loop() {
		New(docs)
	}
}
