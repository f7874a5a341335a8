package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// treePSS sums the proportional set size, in bytes, of a process and all its
// descendants, and of every process that runs the executable exe, so that a
// detached sandbox is not left out. It also counts them.
func treePSS(pid int, exe string) (total int64, processes int, err error) {
	ours, err := descendants(pid, exe)
	if err != nil {
		return 0, 0, err
	}
	for p := range ours {
		pss, err := pssOf(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, 0, err
		}
		total += pss
		processes++
	}
	return total, processes, nil
}

// descendants returns a process, all that descend from it, and every process that
// runs one of the executables.
func descendants(pid int, exes ...string) (map[int]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parent := map[int]int{}
	ours := map[int]bool{pid: true}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if pp, err := parentOf(p); err == nil {
			parent[p] = pp
		}
		if len(exes) == 0 {
			continue
		}
		if target, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && slices.Contains(exes, target) {
			ours[p] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for p, pp := range parent {
			if ours[pp] && !ours[p] {
				ours[p], changed = true, true
			}
		}
	}
	return ours, nil
}

func parentOf(pid int) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name is in parentheses and may hold anything.
	i := bytes.LastIndexByte(raw, ')')
	if i < 0 {
		return 0, fmt.Errorf("process %d: no name in stat", pid)
	}
	fields := strings.Fields(string(raw[i+1:]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("process %d: short stat", pid)
	}
	return strconv.Atoi(fields[1])
}

func pssOf(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if fields := strings.Fields(sc.Text()); len(fields) >= 2 && fields[0] == "Pss:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	if err := sc.Err(); err != nil && !strings.Contains(err.Error(), "no such process") {
		return 0, err
	}
	return 0, fs.ErrNotExist // a zombie has no memory
}
