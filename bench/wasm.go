package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A pair is the engine wasm and gVisor, each with a copy of the executable and a home
// directory of its own. They are measured in turn, so that both see the same machine.
type pair [2]*bench

// runWasm measures the engine wasm next to gVisor.
func runWasm(o options, python string, stdout, stderr io.Writer) (err error) {
	var p pair
	rep := report{Machine: describeMachine()}
	for i, env := range [][]string{{"SALLYPORT_ENGINE=wasm", "SALLYPORT_POLICY_MIN_ISOLATION=wasm"}, {"SALLYPORT_ENGINE=gvisor"}} {
		var e error
		if p[i], rep.User, e = prepare(o, stderr); e != nil {
			return e
		}
		defer func() { err = errors.Join(err, os.RemoveAll(p[i].dir)) }()
		p[i].launch.env = append(p[i].launch.env, append(env, "SALLYPORT_SESSIONS_MAX_RUNNING=100")...)
	}
	b := p[0]
	if python != "" {
		b.python = python
	}
	b.say("what both prepare once")
	for i, ready := range []func() error{
		func() error { return b.serving(b.configs.none, onePlusOne) },
		func() error { return p[1].prepared(1) },
	} {
		if err := ready(); err != nil {
			return fmt.Errorf("%s: %w", []string{"wasm", "gVisor"}[i], err)
		}
	}
	for _, part := range []struct {
		what string
		rows func() []row
	}{
		{"a live session", p.live}, {"new sessions and processes", p.begin}, {"64 MB of variables", p.resumed},
		{"many sessions", p.awake}, {"microbenchmarks", p.micro}, {"the executable", p.size},
	} {
		b.say(part.what)
		rep.Rows = append(rep.Rows, part.rows()...)
	}
	return rep.print(o, stdout)
}

// inTurn calls f for each of the pair in changing order, n times after warm uncounted ones.
func inTurn(warm, n int, f func(i, who int) (sample, error)) (each [2]sample, err error) {
	for i := range warm + n {
		for j := range 2 {
			who := (i + j) % 2
			s, err := f(i, who)
			if err != nil {
				return each, fmt.Errorf("%s: %w", []string{"wasm", "gVisor"}[who], err)
			}
			if i >= warm {
				each[who] = append(each[who], s...)
			}
		}
	}
	return each, nil
}

// timed is a sample of one call.
func timed(f func() error) (sample, error) {
	begin := time.Now()
	err := f()
	return sample{time.Since(begin)}, err
}

// compare fills in a row whose p50 is to stay below a limit.
func (r *row) compare(each [2]sample, limit time.Duration, err error) {
	r.fill(each[0], err)
	r.judge(err == nil && each[0].p50() <= limit)
	r.Floor = strings.TrimSuffix("gVisor "+show(each[1].p50())+" / "+show(each[1].p95())+"; "+r.Floor, "; ")
}

// both runs f with two programs that serve.
func (p pair) both(config string, f func(c [2]*client) error) error {
	return p[0].serving(config, func(first *client) error {
		return p[1].serving(config, func(second *client) error { return f([2]*client{first, second}) })
	})
}

// live are calls in a session that runs, and the tool calls inside it.
func (p pair) live() []row {
	rows := []row{
		{What: "run_python print(1+1), live session", Reach: "<= 0.5 ms"},
		{What: "tool call from the sandbox and back", Reach: "<= 0.3 ms over the direct call"},
		{What: "100 gathered calls of 50 ms each", Reach: "next to gVisor"},
		{What: "a 10 MB result, then its len", Reach: "<= 0.4 s"},
	}
	b := p[0]
	err := p.both(b.configs.one, func(c [2]*client) error {
		// Fifty at a time: what a call takes after one of the other engine is more, because
		// nothing of it is in the processor's caches.
		each, err := inTurn(1, max(b.n/50, 2), func(_, who int) (sample, error) {
			return repeat(0, 50, func() error { return onePlusOne(c[who]) })
		})
		rows[0].compare(each, ms/2, err)

		server, err := start(b.launch, b.echoserver)
		if err != nil {
			return err
		}
		var f floors
		if err := errors.Join(b.directCalls(server, &f), server.close()); err != nil {
			return err
		}
		for i, loop := range []struct {
			code      string
			rounds, n int
			limit     time.Duration
			direct    sample
		}{
			{callLoop, 10, max(b.n/10, 10), f.direct.p50() + 3*ms/10, f.direct},
			{gatherLoop, b.few(), 1, math.MaxInt64, f.gather},
			{bigLoop, b.few(), 1, 400 * ms, f.big},
		} {
			each, err := inTurn(0, loop.rounds, func(_, who int) (sample, error) {
				return sandboxTimes(c[who], fmt.Sprintf(loop.code, loop.n), "bench0")
			})
			rows[1+i].Floor = "direct " + show(loop.direct.p50())
			rows[1+i].compare(each, loop.limit, err)
		}
		rows[2].Reached = nil
		return nil
	})
	return failed(rows, err)
}

// failed marks the rows that have no figure.
func failed(rows []row, err error) []row {
	for i := range rows {
		if err != nil && rows[i].P50 == "" && rows[i].Error == "" {
			rows[i].Error = err.Error()
		}
	}
	return rows
}

// begin are first results: of sessions in programs that run, and of programs.
func (p pair) begin() []row {
	rows := []row{
		{What: "first result of a new session", Reach: "<= 15 ms"},
		{What: "process start to first result", Reach: "<= 250 ms"},
	}
	b := p[0]
	err := p.both(b.configs.none, func(c [2]*client) error {
		each, err := inTurn(1, 2*b.some(), func(i, who int) (sample, error) {
			return timed(func() error { return c[who].inSession(fmt.Sprintf("new%d", i), "print(1+1)", "2") })
		})
		rows[0].compare(each, 15*ms, err)
		return nil
	})
	each, startErr := inTurn(1, b.some(), func(_, who int) (s sample, err error) {
		begin := time.Now()
		err = p[who].serving(b.configs.none, func(c *client) error {
			err := onePlusOne(c)
			s = sample{time.Since(begin)}
			return err
		})
		return s, err
	})
	rows[1].compare(each, 250*ms, startErr)
	return failed(rows, err)
}

// resumed is a session that was suspended: back in a new program, and where other
// sessions run; and the end of the program, which suspends it.
func (p pair) resumed() []row {
	rows := []row{
		{What: "64 MB of variables back, in a new process", Reach: "next to gVisor"},
		{What: "64 MB of variables back, where a session runs", Reach: "<= 100 ms"},
		{What: "64 MB of variables kept, at the process's end", Reach: "next to gVisor"},
	}
	var back, kept [2]sample
	for i, other := range []bool{false, true} {
		each, err := inTurn(1, p[0].some(), func(n, who int) (s sample, err error) {
			b := p[who]
			code := "print(len(big) >> 20)"
			if n == 0 && !other {
				code = "import os; big = os.urandom(64 << 20); " + code
			}
			var end time.Time
			err = b.serving(b.configs.none, func(c *client) (err error) {
				time.Sleep(200 * ms)
				if other {
					if err := onePlusOne(c); err != nil {
						return err
					}
				}
				s, err = timed(func() error { return c.inSession("big", code, "64") })
				end = time.Now()
				return err
			})
			if !other {
				kept[who] = append(kept[who], time.Since(end))
			}
			return s, err
		})
		back = each
		rows[i].compare(back, 100*ms, err)
		if err != nil {
			return failed(rows, err)
		}
	}
	rows[2].compare(kept, math.MaxInt64, nil)
	rows[0].Reached, rows[2].Reached = nil, nil
	return rows
}

// awake has a hundred sessions that run.
func (p pair) awake() []row {
	rows := []row{
		{What: "memory of each session more", Reach: "<= 4 MB"},
		{What: "100 sessions awake, all processes", Reach: "<= 600 MB"},
	}
	const all = 100
	var more, total [2]float64
	for who, b := range p {
		exe, err := filepath.EvalSymlinks(b.sallyport)
		if err == nil {
			err = b.serving(b.configs.none, func(c *client) error {
				var first int64
				for i := range all {
					if err := c.inSession(fmt.Sprintf("awake%d", i), fmt.Sprintf("x = %d; print(x)", i), fmt.Sprint(i)); err != nil {
						return err
					}
					if i > 0 && i < all-1 {
						continue
					}
					pss, _, err := treePSS(c.cmd.Process.Pid, exe)
					if err != nil {
						return err
					}
					if i == 0 {
						first = pss
					}
					more[who], total[who] = float64(pss-first)/(all-1)/1e6, float64(pss)/1e6
				}
				return nil
			})
		}
		if err != nil {
			return failed(rows, err)
		}
	}
	for i, each := range [][2]float64{more, total} {
		rows[i].P50, rows[i].N = fmt.Sprintf("%.1f MB", each[0]), 1
		rows[i].Floor = fmt.Sprintf("gVisor %.1f MB", each[1])
		rows[i].judge(each[0] <= []float64{4, 600}[i])
	}
	return rows
}

// micro compares the processor time of eleven small programs with the machine's own
// Python, in turn.
func (p pair) micro() []row {
	r := row{What: "eleven microbenchmarks, CPU time next to the machine's Python", Reach: "<= 4.8 times"}
	var version, note string
	var ratios []float64
	err := p[0].serving(p[0].configs.none, func(c *client) error {
		script := filepath.Join(p[0].dir, "micro.py")
		if err := os.WriteFile(script, []byte(microbenchmarks), 0o644); err != nil {
			return err
		}
		var best [2]map[string]float64
		for range 3 {
			out, err := p[0].launch.command(p[0].python, script).Output()
			if err != nil {
				return fmt.Errorf("%s: %w", p[0].python, err)
			}
			text, err := c.tool("run_python", map[string]any{"code": microbenchmarks, "timeout": 60})
			if err != nil {
				return err
			}
			for who, text := range []string{string(out), text} {
				var times map[string]float64
				line, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
				if err := json.Unmarshal([]byte(more), &times); err != nil {
					return fmt.Errorf("%w in %.300q", err, text)
				}
				if who == 0 {
					version = line
				}
				for name, t := range times {
					if before, ok := best[who][name]; ok {
						times[name] = min(t, before)
					}
				}
				best[who] = times
			}
		}
		for _, n := range slices.Sorted(maps.Keys(best[0])) {
			ratio := best[1][n] / best[0][n]
			ratios = append(ratios, ratio)
			note += fmt.Sprintf(" %s %.1f", n, ratio)
		}
		return nil
	})
	if err != nil {
		r.Error = err.Error()
		return []row{r}
	}
	product := 1.0
	for _, x := range ratios {
		product *= x
	}
	mean := math.Pow(product, 1/float64(len(ratios))) // the geometric one
	r.P50, r.N, r.Floor, r.Note = fmt.Sprintf("%.1f times", mean), len(ratios), "Python "+version, strings.TrimSpace(note)
	r.judge(mean <= 4.8)
	return []row{r}
}

// microbenchmarks print the version, then the seconds of processor time of each.
const microbenchmarks = `
import json, math, re, sys, time

def calls(n=22):
    return n if n < 2 else calls(n - 1) + calls(n - 2)
def integers():
    total = 0
    for i in range(400_000):
        total = (total * 31 + i) & 0xffffffff
def floats():
    x = y = 0.1
    for i in range(250_000):
        x, y = x * 0.99 + math.sin(y), y * 0.98 - x
def sieve():
    n = 200_000
    marks = bytearray([1]) * n
    for i in range(2, 450):
        if marks[i]:
            for k in range(i * i, n, i):
                marks[k] = 0
def strings():
    parts = []
    for i in range(100_000):
        parts.append("%d:%s" % (i, "x" * (i & 7)))
    ",".join(parts).split(",")
def dicts():
    counts = {}
    for i in range(250_000):
        k = i * 7919 % 5003
        counts[k] = counts.get(k, 0) + 1
def sorts():
    items = [i * 7919 % 100_003 for i in range(60_000)]
    sorted(items), sorted(items, key=lambda i: -i)
def objects():
    class Point:
        def __init__(self, x):
            self.x = x
        def move(self, d):
            self.x += d
            return self
    p = Point(0)
    for i in range(120_000):
        p.move(1).move(-1)
def generators():
    sum(x * x for x in (y + 1 for y in range(200_000)))
    [len(str(i)) for i in range(80_000)]
def patterns():
    text = "key=value; other=thing, last: 42 " * 3_000
    len(re.findall(r"(\w+)[=:]\s*(\w+)", text)), re.sub(r"\d+", "n", text)
def documents():
    data = [{"id": i, "name": "n%d" % i, "tags": ["a", "b"], "x": i / 3} for i in range(8_000)]
    json.loads(json.dumps(data))

def _measure():
    out = {}
    for f in calls, integers, floats, sieve, strings, dicts, sorts, objects, generators, patterns, documents:
        f()
        t = time.process_time()
        f()
        out[f.__name__] = time.process_time() - t
    return out
print(sys.version.split()[0])
print(json.dumps(_measure()))
`

// size is the executable's.
func (p pair) size() []row {
	r := row{What: "size of the executable", Reach: "the engine adds <= 10 MB"}
	info, err := os.Stat(p[0].sallyport)
	if err != nil {
		r.Error = err.Error()
		return []row{r}
	}
	r.P50, r.N = fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), 1
	return []row{r}
}
