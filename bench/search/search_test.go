package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/toolbox/search"
)

var update = flag.Bool("update", false, "rewrite testdata/figures.txt")

// sets are the sets that may be in this repository, with what is promised of
// them: R@5 and, where it is not 0, hit@1.
var sets = []struct {
	name, method string
	hit1, r5     float64
}{
	{"golden", "substring", 0, 0},
	{"golden", "bm25", 0, 0},
	{"golden", "lexical", 0, .75},
	{"golden", "vectors", 0, 0},
	{"golden", "both", 0, .82},
	{"metatool", "substring", 0, 0},
	{"metatool", "bm25", 0, 0},
	{"metatool", "lexical", .46, .68},
	{"metatool", "vectors", 0, 0},
	{"metatool", "both", .51, .74},
}

// TestFigures keeps every figure that docs/RATIONALE.md gives, and that each
// is as good as promised. They are the same on every machine.
func TestFigures(t *testing.T) {
	var got strings.Builder
	for _, set := range sets {
		var out, warn bytes.Buffer
		err := run([]string{
			"--tools", filepath.Join("testdata", set.name, "tools.json"),
			"--queries", filepath.Join("testdata", set.name, "queries.jsonl"),
			"--method", set.method,
		}, &out, &warn)
		if err != nil || warn.Len() > 0 {
			t.Fatalf("%s, %s: %v %s", set.name, set.method, err, &warn)
		}
		line, _, _ := strings.Cut(out.String(), " q/s")
		got.WriteString(set.name + " " + set.method + ": " + line + "\n")
		if hit1, r5 := figure(t, line, "hit@1"), figure(t, line, "R@5"); hit1 < set.hit1 || r5 < set.r5 {
			t.Errorf("%s, %s: hit@1 %.3f, promised %.2f; R@5 %.3f, promised %.2f", set.name, set.method, hit1, set.hit1, r5, set.r5)
		}
	}
	const file = "testdata/figures.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("figures have changed (-update keeps the new ones; docs/RATIONALE.md has them too):\n%swant\n%s", got.String(), want)
	}
}

func figure(t *testing.T, line, name string) float64 {
	t.Helper()
	words := strings.Fields(line)
	for i := range len(words) - 1 {
		if words[i] == name {
			f, err := strconv.ParseFloat(words[i+1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("no %s in %q", name, line)
	return 0
}

func TestParseTools(t *testing.T) {
	const one = `{"name":"read","description":"Reads.","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"Where."},"all":true}},"annotations":{"readOnlyHint":true}}`
	full := search.Doc{Server: "s", Name: "read", Description: "Reads.", ReadOnly: true,
		Arguments: []search.Argument{{Name: "all"}, {Name: "path", Description: "Where."}}}
	for name, c := range map[string]struct {
		in   string
		want []search.Doc
	}{
		"an answer":               {`{"tools":[` + one + `],"nextCursor":"x"}`, []search.Doc{full}},
		"an answer in its frame":  {`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + one + `]}}`, []search.Doc{full}},
		"instructions":            {`{"tools":[{"name":"a"}],"instructions":"All of it."}`, []search.Doc{{Server: "s", Name: "a", ServerDescription: "All of it."}}},
		"servers by name":         {`{"z":[{"name":"a"}],"b":[{"name":"c"}],"$about":"text"}`, []search.Doc{{Server: "b", Name: "c"}, {Server: "z", Name: "a"}}},
		"servers with objects":    {`{"z":{"tools":[{"name":"a"}],"description":"Zs."}}`, []search.Doc{{Server: "z", Name: "a", ServerDescription: "Zs."}}},
		"a server named tools":    {`{"tools":{"tools":[{"name":"a"}]}}`, []search.Doc{{Server: "tools", Name: "a"}}},
		"a bare list":             {`[{"name":"a"}]`, []search.Doc{{Server: "s", Name: "a"}}},
		"a byte order mark":       {"\ufeff" + `{"tools":[{"name":"a"}]}`, []search.Doc{{Server: "s", Name: "a"}}},
		"nulls and odd types":     {`{"tools":[null,7,{"name":7},{"name":"a","description":null,"inputSchema":"no"},{"name":"b","inputSchema":{"properties":[1]},"annotations":null}]}`, []search.Doc{{Server: "s", Name: "a"}, {Server: "s", Name: "b"}}},
		"annotations of odd type": {`{"tools":[{"name":"a","annotations":"none"}]}`, []search.Doc{{Server: "s", Name: "a"}}},
		"a title":                 {`{"tools":[{"name":"a","title":"Add up","description":"Sums."}]}`, []search.Doc{{Server: "s", Name: "a", Description: "Add up. Sums."}}},
		"no tools":                {`{"tools":[]}`, nil},
	} {
		got, err := parseTools([]byte(c.in), "s")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !equal(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
	for _, in := range []string{"", "{", "7", `"tools"`} {
		if got, err := parseTools([]byte(in), "s"); err == nil {
			t.Errorf("%q is read as %+v", in, got)
		}
	}
}

func equal(a, b []search.Doc) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if len(x.Arguments) != len(y.Arguments) {
			return false
		}
		for j := range x.Arguments {
			if x.Arguments[j] != y.Arguments[j] {
				return false
			}
		}
		if x.Server != y.Server || x.Name != y.Name || x.Description != y.Description ||
			x.ServerDescription != y.ServerDescription || x.ReadOnly != y.ReadOnly {
			return false
		}
	}
	return true
}

// TestRun goes through what people feed to such a program.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tools := file("tools/disk.json", `{"tools":[{"name":"read_file","description":"Reads a file."},{"name":"remove","description":"Deletes a file."}]}`)
	file("tools/deep/mail.json", `{"tools":[{"name":"send","description":"Sends a mail."},{"name":"send","description":"Again."}]}`)
	file("tools/about.txt", "no tools")
	good := file("good.jsonl", "{\"query\":\"read a file\",\"relevant\":[\"disk/read_file\"]}\r\n\n{\"query\":\"send mail\",\"relevant\":[\"mail/send\"]}\n")

	for _, c := range []struct {
		name      string
		args      []string
		out, warn string
		err       string
	}{
		{"a folder", []string{"--tools", filepath.Join(dir, "tools"), "--queries", good}, "hit@1 1.000 R@1 1.000 R@5 1.000 R@10 1.000 MRR 1.000 se(R@5) 0.000 q/s ", "mail/send stands there twice", ""},
		{"a relevant tool that nobody has", []string{"--tools", tools, "--queries", good, "--method", "lexical"}, "hit@1 0.500 R@1 0.500 R@5 0.500 ", `no tool "mail/send"`, ""},
		{"all methods' names", []string{"--tools", tools, "--queries", good, "--method", "magic"}, "", "", "one of lexical, vectors, both, bm25, substring"},
		{"no relevant tool known", []string{"--tools", tools, "--queries", file("other.jsonl", `{"query":"x","relevant":["a:b"]}`)}, "", "", "relevant tools are written server/tool"},
		{"no queries", []string{"--tools", tools, "--queries", file("empty.jsonl", "\n")}, "", "", "no queries"},
		{"a query without relevant tools", []string{"--tools", tools, "--queries", file("none.jsonl", `{"query":"x"}`)}, "", "no relevant tools; left out", "no queries"},
		{"odd queries", []string{"--tools", tools, "--queries", file("odd.jsonl", `{"query":"","relevant":["disk/remove"]}`)}, "hit@1 0.000 R@1 0.000 R@5 0.000 R@10 0.000 MRR 0.000 se(R@5) NaN", "", ""},
		{"a broken line", []string{"--tools", tools, "--queries", file("bad.jsonl", "{\"query\":\"x\",\"relevant\":[\"disk/remove\"]}\n{")}, "", "", "bad.jsonl:2"},
		{"broken tools", []string{"--tools", file("bad.json", "{"), "--queries", good}, "", "", "bad.json"},
		{"no tools", []string{"--tools", file("none.json", `{"tools":[]}`), "--queries", good}, "", "has no tools", "no tools in"},
		{"no such file", []string{"--tools", filepath.Join(dir, "gone"), "--queries", good}, "", "", "gone"},
		{"nothing asked", nil, "", "", "are needed"},
		{"speed", []string{"--tools", tools, "--queries", good, "--speed", "30"}, "both over 30 tools: p50 ", "", ""},
		{"misses", []string{"--tools", tools, "--queries", file("miss.jsonl", `{"query":"qqqq","relevant":["disk/remove"]}`), "--misses"}, "hit@1 0.000", "missed [disk/remove]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, warn bytes.Buffer
			err := run(c.args, &out, &warn)
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if !strings.HasPrefix(out.String(), c.out) {
				t.Errorf("printed %q, want %q", &out, c.out)
			}
			if !strings.Contains(warn.String(), c.warn) {
				t.Errorf("warned %q, want %q", &warn, c.warn)
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	docs := make([]search.Doc, 12)
	find := func(query string, limit int) []int { return []int{3, 1, 2, 4, 5, 6, 7, 8, 9, 0} }
	f := measure(docs, []query{
		{"a", map[int]bool{3: true, 0: true}}, // first, and tenth
		{"b", map[int]bool{2: true}},          // third
		{"c", map[int]bool{11: true}},         // not at all
	}, find, nil)
	line, _, _ := strings.Cut(f.String(), " q/s")
	if want := "hit@1 0.333 R@1 0.167 R@5 0.500 R@10 0.667 MRR 0.444 se(R@5) 0.289"; line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
}

// TestWeak: queries that have no answer get only weak hits, and those that have one
// do not.
func TestWeak(t *testing.T) {
	weak := func(x *search.Index, q string) bool {
		hits := x.Search(q, search.Options{Limit: 5})
		return !slices.ContainsFunc(hits, func(h search.Hit) bool { return !h.Weak })
	}
	for name, most := range map[string]int{"golden": 0, "metatool": 1} {
		docs, err := readTools([]string{filepath.Join("testdata", name, "tools.json")}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		queries, err := readQueries(filepath.Join("testdata", name, "queries.jsonl"), docs, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		x := search.New(docs)
		var got []string
		for _, q := range queries {
			if weak(x, q.text) {
				got = append(got, q.text)
			}
		}
		if len(got) > most {
			t.Errorf("%s: of %d queries with an answer %d have only weak hits, want %d: %q", name, len(queries), len(got), most, got)
		}
		if name != "golden" { // the other has tools for most of these
			continue
		}
		for _, q := range []string{
			"bake a chocolate cake", "translate klingon poetry", "book a dentist appointment", "how tall is the eiffel tower",
			"tune my guitar", "walk the dog", "control the thermostat at home", "pay my electricity bill", "order a pizza", "diagnose a rash",
		} {
			if !weak(x, q) {
				t.Errorf("%q has hits that are not weak", q)
			}
		}
	}
}
