package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/life"}
{"Action":"run","Test":"TestA/life/exec"}
{"Action":"pass","Test":"TestA/life/exec","Elapsed":0.5}
{"Action":"pass","Test":"TestA/life"}
{"Action":"run","Test":"TestA/limits"}
{"Action":"run","Test":"TestA/limits/memory"}
{"Action":"output","Test":"TestA/limits/memory","Output":"    suite.go:12: no limit here\n"}
{"Action":"skip","Test":"TestA/limits/memory"}
{"Action":"pass","Test":"TestA/limits"}
not an event
{"Action":"pass","Test":"TestA"}
{"Action":"pass"}
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadEvents(t *testing.T) {
	e, err := readEvents("a", strings.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(e.order, " ") != "life/exec limits/memory" {
		t.Errorf("scenarios %q", e.order)
	}
	if c := e.cells["limits/memory"]; c.Outcome != skipped || c.Reason != "no limit here" {
		t.Errorf("%+v", c)
	}
	// A process that was killed leaves tests without an end, and a parent that
	// fails by itself counts.
	for text, want := range map[string]string{
		`{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/hangs"}`: "hangs=fail",
		`{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/b"}
{"Action":"run","Test":"TestA/b/c"}
{"Action":"pass","Test":"TestA/b/c"}
{"Action":"fail","Test":"TestA/b"}
{"Action":"fail","Test":"TestA"}`: "b=fail b/c=pass",
		`{"Action":"run","Test":"TestA"}
{"Action":"skip","Test":"TestA"}`: "(the suite)=skip",
	} {
		e, err := readEvents("a", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range e.order {
			got = append(got, s+"="+e.cells[s].Outcome)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if _, err := readEvents("a", strings.NewReader("nothing\n")); err == nil {
		t.Error("a run without a test is taken for one")
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name, expected string
		wrong          []string // a word of each complaint
	}{
		{"as expected", "a limits/* skip there is none\n", nil},
		{"nothing listed", "", []string{"unexpected skip: no limit here"}},
		{"another outcome", "a limits/* fail it breaks\n", []string{"unexpected skip", "line 1 of the list"}},
		{"unexpected pass", "a limits/* skip there is none\na life/exec fail it breaks\n", []string{"life/exec on a passes", "line 2 of the list"}},
		{"an entry for nothing", "a limits/* skip there is none\na no/such skip never\n", []string{"line 2 of the list"}},
		{"an engine that did not run", "a limits/* skip there is none\nz life/* fail never\n", nil},
		{"a fact that holds", "a limits/* skip if=cgroup-v1 there is none\n", nil},
		{"a fact that does not", "a limits/* skip there is none\na life/* fail if=cgroup-v2 it breaks\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "a.json", good)
			list := write(t, dir, "expected.txt", tt.expected)
			out := filepath.Join(dir, "out")
			var b bytes.Buffer
			ok, err := run(&b, dir, list, out, false, false, []string{"cgroup-v1"})
			if err != nil {
				t.Fatal(err)
			}
			if ok != (len(tt.wrong) == 0) {
				t.Errorf("ok is %v:\n%s", ok, b.String())
			}
			var m struct{ Wrong []string }
			text, _ := os.ReadFile(out)
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			if len(m.Wrong) != len(tt.wrong) {
				t.Fatalf("complaints %q, want %q", m.Wrong, tt.wrong)
			}
			for i, want := range tt.wrong {
				if !strings.Contains(m.Wrong[i], want) {
					t.Errorf("%q does not say %q", m.Wrong[i], want)
				}
			}
		})
	}
}

// A run of some scenarios says nothing about entries for others, and still
// about those for its own.
func TestPartial(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.json", good)
	list := write(t, dir, "expected.txt", "a limits/* skip there is none\na isolation/* fail of another run\na life/exec skip never\n")
	var b bytes.Buffer
	ok, err := run(&b, dir, list, "", true, true, nil)
	if ok || err != nil || strings.Contains(b.String(), "isolation") || !strings.Contains(b.String(), "life/exec on a passes") {
		t.Errorf("%v %v\n%s", ok, err, b.String())
	}
}

func TestExpectedForm(t *testing.T) {
	for _, text := range []string{"a b\n", "a b pass why\n", "a b skip\n", "a b skip if=cgroup-v1\n"} {
		if _, err := readExpected(write(t, t.TempDir(), "x", text), nil); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	// The one in the tree.
	if _, err := readExpected("../expected.txt", nil); err != nil {
		t.Error(err)
	}
}

func TestPrint(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.json", good)
	write(t, dir, "b.json", strings.ReplaceAll(good, `"Action":"skip"`, `"Action":"fail"`))
	list := write(t, dir, "expected.txt", "a limits/* skip there is none\nb limits/* fail it is not held\n")
	var b bytes.Buffer
	if ok, err := run(&b, dir, list, "", true, false, nil); !ok || err != nil {
		t.Fatalf("%v %v\n%s", ok, err, b.String())
	}
	for _, want := range []string{"limits/memory  skip  differs", "life (1 more)  pass  pass", "fail, for it is not held:", "b limits/memory", "Everything is as expected"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
