// Command matrix puts what the suite of the engines said side by side: a row a
// scenario, a column an engine. It reads a file of `go test -json` events for
// each engine, NAME.json in one directory, and the list of differences that
// are expected, with their reasons.
//
//	go run ./test/engines/matrix -expected test/engines/expected.txt -json out.json DIR
//
// It fails when a scenario fails or skips that the list does not name, and when
// one does neither that the list does name, so that the list stays true.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	expected := flag.String("expected", "", "the list of expected differences")
	out := flag.String("json", "", "where to write the matrix as JSON")
	brief := flag.Bool("brief", false, "leave out groups of scenarios that pass on every engine")
	partial := flag.Bool("partial", false, "not every scenario was run")
	flag.Parse()
	ok, err := run(os.Stdout, flag.Arg(0), *expected, *out, *brief, *partial, hostFacts())
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(w io.Writer, dir, expected, out string, brief, partial bool, facts []string) (bool, error) {
	engines, err := readDir(dir)
	if err != nil {
		return false, err
	}
	if len(engines) == 0 {
		return false, fmt.Errorf("no engine has results in %q", dir)
	}
	var list []difference
	if expected != "" {
		if list, err = readExpected(expected, facts); err != nil {
			return false, err
		}
	}
	m := judge(engines, list, partial)
	m.Host = facts
	if out != "" {
		if err := m.write(out); err != nil {
			return false, err
		}
	}
	m.print(w, brief)
	return len(m.Wrong) == 0, nil
}

// hostFacts are what an entry of the list can make its condition.
func hostFacts() []string {
	facts := []string{"cgroup-v1"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		facts[0] = "cgroup-v2"
	}
	// Anybody may have the kernel watch how busy the machine is.
	if info, err := os.Stat("/proc/pressure/io"); err == nil && info.Mode().Perm()&0o002 != 0 {
		facts = append(facts, "open-pressure")
	}
	return facts
}
