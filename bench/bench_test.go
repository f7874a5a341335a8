package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	s := sample{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.95: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := (sample)(nil).p50(); got != 0 {
		t.Errorf("an empty sample has p50 %d", got)
	}
}

func TestTableAligns(t *testing.T) {
	yes := true
	rep := report{Rows: []row{
		{What: "a", Reach: "<= 1 ms", P50: "0.5 ms", N: 3, Reached: &yes, Floor: "pipe 6 µs"},
		{What: "longer", Reach: "x", Error: "it broke\nin between\nbadly"},
	}}
	var b bytes.Buffer
	if err := rep.writeTable(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")[2:]
	for _, l := range lines {
		if got, want := len([]rune(l)), len([]rune(lines[0])); got != want {
			t.Errorf("line is %d wide, the head %d: %q", got, want, l)
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, "failed") || !strings.Contains(last, "it broke … badly") {
		t.Errorf("a failed row reads %q", last)
	}
}

func TestTreePSSCountsChildren(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before, n, err := treePSS(os.Getpid(), exe)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait() // it was killed
	}()
	_, with, err := treePSS(os.Getpid(), exe)
	if err != nil {
		t.Fatal(err)
	}
	if before <= 1<<20 || with != n+1 {
		t.Errorf("%d bytes in %d processes, then %d with one child more", before, n, with)
	}
}

// TestDirectCalls runs the floors' code against the real echo server.
func TestDirectCalls(t *testing.T) {
	dir := t.TempDir()
	b := &bench{n: 20, echoserver: filepath.Join(dir, "echoserver"), launch: launch{dir: dir}}
	if err := buildEchoserver(b.echoserver); err != nil {
		t.Fatal(err)
	}
	c, err := start(b.launch, b.echoserver, "-tools", "27")
	if err != nil {
		t.Fatal(err)
	}
	var f floors
	if err := b.directCalls(c, &f); err != nil {
		t.Fatal(err)
	}
	raw, err := request[json.RawMessage](c, "tools/list", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), `"inputSchema"`); n != 27 {
		t.Errorf("%d tools listed, want 27", n)
	}
	if _, err := c.tool("no_such_tool", struct{}{}); err == nil {
		t.Error("an unknown tool succeeded")
	}
	if _, err := request[json.RawMessage](c, "server/discover", struct{}{}); err == nil || !strings.Contains(err.Error(), "-32601") {
		t.Errorf("an unknown method: %v", err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if len(f.direct) != 20 || len(f.gather) != 3 || len(f.big) != 3 {
		t.Errorf("samples of %d, %d, %d", len(f.direct), len(f.gather), len(f.big))
	}
	if f.gather.p50() < 50*time.Millisecond {
		t.Errorf("a hundred calls of 50 ms took %v", f.gather.p50())
	}
}

// A list that names nothing is a mistake, not a table without rows.
func TestEnginesNeedAList(t *testing.T) {
	for text, want := range map[string]string{"": "JSON", "[]": "no engine", "{}": "cannot unmarshal"} {
		file := filepath.Join(t.TempDir(), "engines.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := runEngines(options{n: 1}, file, &out, &out)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: %v, %q", text, err, out.String())
		}
	}
}

// The first of the repetitions warms up; one alone is no figure.
func TestFillAfterOne(t *testing.T) {
	var r row
	r.fillAfterOne(sample{time.Second, time.Millisecond, 3 * time.Millisecond}, nil)
	if r.N != 2 || r.P95 != "3.00 ms" || r.Error != "" {
		t.Errorf("%+v", r)
	}
	var one row
	if one.fillAfterOne(sample{time.Second}, nil); one.Error == "" || one.P50 != "" {
		t.Errorf("%+v", one)
	}
}

// Each of a pair is first as often as the other, and the first repetition warms up.
func TestInTurn(t *testing.T) {
	var order []int
	each, err := inTurn(1, 2, func(i, who int) (sample, error) {
		order = append(order, who)
		return sample{time.Duration(10*i + who)}, nil
	})
	if err != nil || !slices.Equal(order, []int{0, 1, 1, 0, 0, 1}) {
		t.Errorf("got the order %v, %v", order, err)
	}
	if !slices.Equal(each[0], sample{10, 20}) || !slices.Equal(each[1], sample{11, 21}) {
		t.Errorf("got %v, want [10 20] and [11 21]", each)
	}
	if _, err := inTurn(0, 1, func(_, who int) (sample, error) { return nil, errors.New("broken") }); err == nil || err.Error() != "wasm: broken" {
		t.Errorf("got %v, want wasm: broken", err)
	}
}
