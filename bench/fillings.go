package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A filling is a way to fill a sandbox's memory.
type filling struct{ name, code string }

// fillings are ten ways to fill memory, and two to have many children that do
// nothing. None ends by itself before it has the memory of some sandboxes.
var fillings = []filling{
	{"a list that grows", `
grown = []
while len(grown) < 1 << 28:
    grown.append(len(grown) + 0.5)`},
	{"a dict that grows", `
grown = {}
while len(grown) < 1 << 26:
    grown[len(grown)] = str(len(grown))`},
	{"a string that doubles", `
text = "x" * 1024
while len(text) < 1 << 33:
    text += text`},
	{"a bytearray that grows", `
grown = bytearray()
while len(grown) < 1 << 32:
    grown += bytes(1 << 20)`},
	{"numpy zeros, then written", `
import numpy
zeros = numpy.zeros((100_000_000,))
for i in range(0, len(zeros), 1 << 17):
    zeros[i:i + (1 << 17)] = 1`},
	{"numpy arrays in a list", `
import numpy
arrays = []
while len(arrays) < 1024:
    arrays.append(numpy.ones((1 << 20,)))`},
	{"a DataFrame that is too large", `
import numpy, pandas
frame = pandas.DataFrame({"c%d" % i: numpy.arange(1_000_000) for i in range(20)})
frame = pandas.concat([frame] * 20).sort_values("c3")
frame.groupby("c1").sum()`},
	{"a file read as a whole", `
with open("/workspace/rows.csv", "w") as f:
    for i in range(1_000_000):
        print(i, i * 3, "some words in a row", i * i, sep=",", file=f)
rows = []
for i in range(100):
    rows += [line.split(",") for line in open("/workspace/rows.csv").read().splitlines()]`},
	{"a child that grows", `
import subprocess, sys
done = subprocess.run([sys.executable, "-c", "grown = []\nwhile len(grown) < 1 << 28: grown.append(len(grown) + 0.5)"],
    capture_output=True, text=True)
print("the child ended with", done.returncode, done.stderr.strip().splitlines()[-1:])`},
	{"eight workers that grow together", `
import multiprocessing
def grow(n):
    return sum(bytearray(b"x" * (150 << 20)))
with multiprocessing.get_context("fork").Pool(8) as pool:
    print(pool.map(grow, range(8)))`},
	{"128 children by os.fork", `
import os
r, w = os.pipe()
children, refused = [], None
try:
    for i in range(128):
        child = os.fork()
        if child == 0:
            os.close(w)
            os.read(r, 1)
            os._exit(0)
        children.append(child)
except OSError as e:
    refused = e
os.close(w)
for child in children:
    os.waitpid(child, 0)
print(len(children), "children", refused or "")`},
	{"128 children by multiprocessing", `
import multiprocessing
fork = multiprocessing.get_context("fork")
end = fork.Event()
children, refused = [], None
try:
    for i in range(128):
        child = fork.Process(target=end.wait)
        child.start()
        children.append(child)
except OSError as e:
    refused = e
end.set()
for child in children:
    child.join()
print(len(children), "children", refused or "")`},
}

// fillingRow is what became of a session whose memory was filled.
type fillingRow struct {
	What   string `json:"what"`
	Kept   bool   `json:"kept"` // the session has its variable
	Peak   int64  `json:"peak"` // bytes, of the sandbox's processes as the sampler saw them
	Took   string `json:"took"`
	Answer string `json:"answer"` // as the agent reads it, its end
}

// runFillings fills the memory of a new session in each way and prints which
// sessions have their variables afterwards.
func runFillings(o options, only string, stdout, stderr io.Writer) (err error) {
	b, who, err := prepare(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	env := []string{"SALLYPORT_IMAGE=" + dataImage}
	if why := b.dataImage(); why != "" {
		b.say("without an image: " + why)
		env = nil
	}
	if err := b.prepared(1, env...); err != nil {
		return err
	}
	var rows []fillingRow
	for _, f := range fillings {
		if !strings.Contains(f.name, only) {
			continue
		}
		b.say(f.name)
		r, err := b.fill(f, env)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		rows = append(rows, r)
	}
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	return writeFillings(stdout, who, rows)
}

func (b *bench) fill(f filling, env []string) (fillingRow, error) {
	r := fillingRow{What: f.name}
	err := b.servingWith(env, b.configs.none, func(c *client) error {
		if _, err := c.python("kept = 42"); err != nil {
			return err
		}
		end, peak := make(chan struct{}), make(chan int64)
		go func() {
			var most int64
			for {
				most = max(most, sandboxMemory(c.cmd.Process.Pid))
				select {
				case <-end:
					peak <- most
					return
				case <-time.After(50 * ms):
				}
			}
		}()
		begin := time.Now()
		answer, err := request[toolResult](c, "tools/call", map[string]any{
			"name": "run_python", "arguments": map[string]any{"code": f.code, "timeout": 80},
		})
		took := time.Since(begin)
		close(end)
		r.Peak, r.Took, r.Answer = <-peak, fmt.Sprintf("%.1f s", took.Seconds()), lastLines(answer.text(), 2)
		if err != nil {
			return err
		}
		after, err := request[toolResult](c, "tools/call", map[string]any{
			"name": "run_python", "arguments": map[string]any{"code": "print(kept)"},
		})
		r.Kept = strings.TrimSpace(after.text()) == "42"
		return err
	})
	return r, err
}

func writeFillings(w io.Writer, who string, rows []fillingRow) error {
	kept := 0
	_, err := fmt.Fprintf(w, "%-34s %-8s %9s %8s  %s\n", "as "+who, "session", "peak", "time", "the end of the answer")
	for _, r := range rows {
		session := "lost"
		if r.Kept {
			session = "kept"
			kept++
		}
		_, werr := fmt.Fprintf(w, "%-34s %-8s %9s %8s  %s\n", r.What, session, megabytes(r.Peak), r.Took, r.Answer)
		err = errors.Join(err, werr)
	}
	_, werr := fmt.Fprintf(w, "%d of %d sessions kept their variables\n", kept, len(rows))
	return errors.Join(err, werr)
}

// sandboxMemory is what the processes below a server have for themselves, and
// what gVisor's kernels have as their sandboxes' memory, which is a file.
func sandboxMemory(server int) (total int64) {
	ours, _ := descendants(server)
	files := map[uint64]int64{} // by inode: all processes of a sandbox have the same one
	for p := range ours {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p))
		var size, resident, shared int64
		if _, err := fmt.Sscan(string(raw), &size, &resident, &shared); err == nil && p != server {
			total += (resident - shared) * int64(os.Getpagesize())
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p))
		for _, fd := range fds {
			target, _ := os.Readlink(fd)
			var st syscall.Stat_t
			if strings.HasPrefix(target, "/memfd:runsc-memory") && syscall.Stat(fd, &st) == nil {
				files[st.Ino] = st.Blocks * 512
				break
			}
		}
	}
	for _, bytes := range files {
		total += bytes
	}
	return total
}

// lastLines is the end of an answer, in one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	out := []rune(strings.Join(lines[max(0, len(lines)-n):], " / "))
	return string(out[:min(len(out), 160)])
}
