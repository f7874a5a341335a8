package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// What became of a scenario on an engine.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
)

// A cell is one scenario on one engine.
type cell struct {
	Outcome string  `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`   // what the test said, where it did not pass
	Seconds float64 `json:"seconds"`            // how long it took
	Because string  `json:"expected,omitempty"` // the list's reason for the outcome
	wrong   bool
}

// An engine is a column: what one run of the suite said.
type engine struct {
	name  string
	cells map[string]*cell
	order []string // of scenarios, as they ran
}

func readDir(dir string) ([]*engine, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	var engines []*engine
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		e, err := readEvents(strings.TrimSuffix(filepath.Base(file), ".json"), f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		engines = append(engines, e)
	}
	return engines, nil
}

// readEvents reads `go test -json`. The name of a scenario is the test's
// without its first part, which is the engine's. A test with subtests counts
// through them, unless it failed and none of them did. What never ended failed:
// its process was killed, by a time limit or by its own fault.
func readEvents(name string, r io.Reader) (*engine, error) {
	type event struct {
		Action, Test, Output string
		Elapsed              float64
	}
	e := &engine{name: name, cells: map[string]*cell{}}
	said := map[string][]string{}
	parent := map[string]bool{}
	var order []string
	ended := map[string]event{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var ev event
		if err := json.Unmarshal(sc.Bytes(), &ev); err != nil || ev.Test == "" {
			continue // what a test wrote past the framework, or the package's own end
		}
		switch ev.Action {
		case "run":
			order = append(order, ev.Test)
			for i, c := range ev.Test {
				if c == '/' {
					parent[ev.Test[:i]] = true
				}
			}
		case "output":
			if line := message(ev.Output); line != "" && len(said[ev.Test]) < 200 {
				said[ev.Test] = append(said[ev.Test], line)
			}
		case "pass", "fail", "skip":
			ended[ev.Test] = ev
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if len(order) == 0 {
		return nil, fmt.Errorf("no test ran")
	}
	childFailed := map[string]bool{}
	for i := len(order) - 1; i >= 0; i-- {
		test := order[i]
		end, over := ended[test]
		if !over {
			end.Action = failed
			said[test] = append(said[test], "it did not end: the run was cut off")
		}
		if end.Action == failed {
			for j, c := range test {
				if c == '/' {
					childFailed[test[:j]] = true
				}
			}
		}
		if parent[test] && (end.Action != failed || childFailed[test]) {
			continue
		}
		c := &cell{Outcome: end.Action, Seconds: end.Elapsed}
		if end.Action != passed {
			c.Reason = strings.Join(said[test], "; ")
		}
		e.cells[scenario(test)] = c
		e.order = append(e.order, scenario(test))
	}
	for i, j := 0, len(e.order)-1; i < j; i, j = i+1, j-1 {
		e.order[i], e.order[j] = e.order[j], e.order[i]
	}
	return e, nil
}

// scenario is a test's name without the engine.
func scenario(test string) string {
	if _, rest, ok := strings.Cut(test, "/"); ok {
		return strings.TrimPrefix(rest, "duplex/") // the fake has a suite of each kind
	}
	return "(the suite)"
}

// message takes what a test said out of a line of its output, and leaves the
// framework's own lines.
func message(line string) string {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
		return ""
	}
	if file, rest, ok := strings.Cut(line, ".go:"); ok && !strings.ContainsAny(file, " /") {
		if _, text, ok := strings.Cut(rest, ": "); ok {
			return text
		}
	}
	return line
}
