package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tiktoken-go/tokenizer"
)

const ms = time.Millisecond

// liveSession measures print(1+1) in a session that already runs, and then
// the tool calls from inside it.
func (b *bench) liveSession(f floors) []row {
	print11 := row{What: "run_python print(1+1), live session", Reach: "<= 0.35 / 1 ms",
		Floor: "pipe echo " + show(f.pipe.p50()) + " / " + show(f.pipe.p95())}
	call := row{What: "tool call from the sandbox and back", Reach: "<= 0.12 ms over the direct call",
		Floor: "direct " + show(f.direct.p50()) + " / " + show(f.direct.p95())}
	gather := row{What: "100 gathered calls of 50 ms each", Reach: "<= 55 ms",
		Floor: "direct " + show(f.gather.p50())}
	big := row{What: "a 10 MB result, then its len", Reach: "<= 60 ms",
		Floor: "direct " + show(f.big.p50())}

	err := b.fresh(b.configs.one, func(c *client) error {
		s, err := repeat(50, b.n, func() error { return onePlusOne(c) })
		print11.fill(s, err)
		print11.judge(err == nil && s.p50() <= 35*ms/100 && s.p95() <= ms)

		s, err = sandboxTimes(c, fmt.Sprintf(callLoop, max(b.n, 10)), "bench0")
		call.fill(s, err)
		call.N *= 10
		over := s.p50() - f.direct.p50()
		call.judge(err == nil && over <= 12*ms/100)
		call.Note = "over it by " + show(over)

		s, err = sandboxTimes(c, fmt.Sprintf(gatherLoop, b.few()), "bench0")
		gather.fill(s, err)
		gather.judge(err == nil && s.p50() <= 55*ms)

		s, err = sandboxTimes(c, fmt.Sprintf(bigLoop, b.few()), "bench0")
		big.fill(s, err)
		big.judge(err == nil && s.p50() <= 60*ms)
		return nil
	})
	rows := []row{print11, call, gather, big, b.smallFiles()}
	if err != nil {
		for i := range rows {
			if rows[i].P50 == "" && rows[i].Error == "" {
				rows[i].Error = err.Error()
			}
		}
	}
	return rows
}

// The loops time themselves with the sandbox's clock, so that they measure the
// call alone and not the run_python around it. Reading that clock is a system
// call there, which is why calls are timed by tens.
const (
	callLoop = `
import json, time
async def _measure(n):
    out = []
    for i in range(n // 10 + 5):
        t = time.perf_counter_ns()
        for _ in range(10):
            r = await mcp_bench0.echo(text="x")
        d = time.perf_counter_ns() - t
        assert r == "x", r
        if i >= 5:
            out.append(d // 10)
    return out
print(json.dumps(await _measure(%d)))
`
	gatherLoop = `
import asyncio, json, time
async def _measure(n):
    out = []
    for i in range(n + 1):
        t = time.perf_counter_ns()
        r = await asyncio.gather(*(mcp_bench0.sleep50() for _ in range(100)))
        d = time.perf_counter_ns() - t
        assert r == ["slept"] * 100, r[:3]
        if i:
            out.append(d)
    return out
print(json.dumps(await _measure(%d)))
`
	bigLoop = `
import json, time
async def _measure(n):
    out = []
    for i in range(n + 1):
        t = time.perf_counter_ns()
        r = len(await mcp_bench0.big10mb())
        d = time.perf_counter_ns() - t
        assert r == 10000000, r
        if i:
            out.append(d)
    return out
print(json.dumps(await _measure(%d)))
`
)

func (r *row) fill(s sample, err error) {
	if err != nil {
		r.Error = err.Error()
		return
	}
	r.P50, r.P95, r.N = show(s.p50()), show(s.p95()), len(s)
}

func onePlusOne(c *client) error {
	text, err := c.python("print(1+1)")
	if err == nil && strings.TrimSpace(text) != "2" {
		err = fmt.Errorf("print(1+1) answered %q", text)
	}
	return err
}

// newSession measures the first result of a session, from its request. Each
// repetition is a process of its own, so that nothing is prepared.
func (b *bench) newSession(f floors) row {
	r := row{What: "first result of a new session, nothing prepared", Reach: "<= 150 ms",
		Floor: f.startFloor()}
	var s sample
	_, err := repeat(1, b.some(), func() error {
		return b.fresh(b.configs.none, func(c *client) error {
			// The process has answered initialize; let its start be over.
			time.Sleep(100 * ms)
			begin := time.Now()
			err := onePlusOne(c)
			s = append(s, time.Since(begin))
			return err
		})
	})
	if err == nil {
		s = s[1:]
	}
	r.fill(s, err)
	r.judge(err == nil && s.p50() <= 150*ms)
	return r
}

// fromProcessStart measures from the start of sallyport to its first result.
func (b *bench) fromProcessStart(f floors) row {
	r := row{What: "process start to first result, nothing prepared", Reach: "<= 400 ms",
		Floor: f.startFloor()}
	var s sample
	_, err := repeat(1, b.some(), func() error {
		begin := time.Now()
		return b.fresh(b.configs.none, func(c *client) error {
			err := onePlusOne(c)
			s = append(s, time.Since(begin))
			return err
		})
	})
	if err == nil {
		s = s[1:]
	}
	r.fill(s, err)
	r.judge(err == nil && s.p50() <= 400*ms)
	return r
}

// idleMemory measures what the idle server holds, and what one bare session
// adds.
func (b *bench) idleMemory() row {
	const mb = 1e6
	r := row{What: "idle PSS: server alone / one bare session more", Reach: "<= 30 / 30 MB"}
	alone, more, err := b.idlePSS()
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.P50, r.N = fmt.Sprintf("%.1f / %.1f MB", float64(alone)/mb, float64(more)/mb), 1
	r.judge(alone <= 30*mb && more <= 30*mb)
	return r
}

// idlePSS returns the bytes of an idle server, and of one bare session more.
func (b *bench) idlePSS() (alone, more int64, err error) {
	exe, err := filepath.EvalSymlinks(b.sallyport)
	if err != nil {
		return 0, 0, err
	}
	err = b.fresh(b.configs.two, func(c *client) error {
		if _, err := request[json.RawMessage](c, "tools/list", struct{}{}); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		if alone, _, err = treePSS(c.cmd.Process.Pid, exe); err != nil {
			return err
		}
		if err := onePlusOne(c); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		with, _, err := treePSS(c.cmd.Process.Pid, exe)
		more = with - alone
		return err
	})
	return alone, more, err
}

// revisions of the protocol that begin with initialize. The newest has no
// handshake and is asked with server/discover.
var revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

const newestRevision = "2026-07-28"

// contextCost counts the tokens of tools/list and instructions, for every
// revision, with few servers and with many behind it, and reports the most.
func (b *bench) contextCost() row {
	r := row{What: "tools/list and instructions, every revision", Reach: "<= 200 tokens (o200k_base)"}
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	least, most, n, where, err := b.tokens(enc)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.P50, r.N = fmt.Sprintf("%d to %d", least, most), n
	r.Note = "most with " + where
	r.judge(most <= 200)
	return r
}

// tokens returns the fewest and the most tokens of n ways to ask, and which has most.
func (b *bench) tokens(enc tokenizer.Codec) (least, most, n int, where string, err error) {
	for _, catalogue := range []struct {
		name   string
		config string
	}{{"2 servers", b.configs.two}, {"17 servers, 459 tools", b.configs.many}} {
		for _, version := range append(revisions, newestRevision) {
			list, instructions, err := b.advertised(catalogue.config, version)
			if err != nil {
				return 0, 0, 0, "", fmt.Errorf("%s: %w", version, err)
			}
			tokens, err := enc.Count(list + instructions)
			if err != nil {
				return 0, 0, 0, "", err
			}
			if tokens > most {
				most, where = tokens, version+", "+catalogue.name
			}
			if least == 0 || tokens < least {
				least = tokens
			}
			n++
		}
	}
	return least, most, n, where, nil
}

// advertised returns the whole tools/list answer and the instructions.
func (b *bench) advertised(config, version string) (list, instructions string, err error) {
	err = b.launched(nil, config, func(c *client) error {
		if version != newestRevision {
			if instructions, err = c.initialize(version); err != nil {
				return err
			}
			raw, err := request[json.RawMessage](c, "tools/list", struct{}{})
			list = string(raw)
			return err
		}
		params := map[string]any{"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    version,
			"io.modelcontextprotocol/clientInfo":         map[string]string{"name": "sallyport-bench", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": struct{}{},
		}}
		d, err := request[struct{ Instructions string }](c, "server/discover", params)
		if err != nil {
			return err
		}
		instructions = d.Instructions
		raw, err := request[json.RawMessage](c, "tools/list", params)
		list = string(raw)
		return err
	})
	return list, instructions, err
}

// launched runs f with a new `sallyport serve`, and ends it. env is added to its
// environment.
func (b *bench) launched(env []string, config string, f func(*client) error) error {
	l := b.launch
	l.env = slices.Concat(l.env, env)
	c, err := start(l, b.sallyport, "serve", "--servers-config", config)
	if err != nil {
		return err
	}
	err = f(c)
	return errors.Join(err, c.close())
}

// open starts a new `sallyport serve` and does the handshake.
func (b *bench) open(env []string, config string) (*client, error) {
	l := b.launch
	l.env = slices.Concat(l.env, env)
	c, err := start(l, b.sallyport, "serve", "--servers-config", config)
	if err != nil {
		return nil, err
	}
	if _, err := c.initialize("2025-11-25"); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// serving is launched with the handshake done.
func (b *bench) serving(config string, f func(*client) error) error {
	return b.servingWith(nil, config, f)
}

// fresh is serving without snapshots: nothing is prepared.
func (b *bench) fresh(config string, f func(*client) error) error {
	return b.servingWith([]string{anew}, config, f)
}

func (b *bench) servingWith(env []string, config string, f func(*client) error) error {
	return b.launched(env, config, func(c *client) error {
		if _, err := c.initialize("2025-11-25"); err != nil {
			return err
		}
		return f(c)
	})
}

// smallFiles measures many small files in /workspace next to a directory in memory of
// this machine. The code is the same.
func (b *bench) smallFiles() row {
	r := row{What: "1000 small files written and read in /workspace", Reach: "<= 2 times native"}
	var native, s sample
	err := b.fresh(b.configs.none, func(c *client) error {
		for range b.some() {
			out, err := b.launch.command(b.python, "-c", smallFiles, "/dev/shm").Output()
			if err != nil {
				return fmt.Errorf("natively: %w", err)
			}
			own, err := nanoseconds(string(out))
			if err != nil {
				return err
			}
			theirs, err := sandboxTimes(c, smallFiles)
			if err != nil {
				return err
			}
			native, s = append(native, own...), append(s, theirs...)
		}
		return nil
	})
	r.fill(s, err)
	r.Floor = "native " + show(native.p50())
	r.judge(err == nil && s.p50() <= 2*native.p50())
	return r
}

// executableSize measures the executable without symbols.
func (b *bench) executableSize() row {
	const mb = 1e6
	r := row{What: "executable, stripped", Reach: "<= 80 MB"}
	to := filepath.Join(b.dir, "stripped")
	err := build("", "", to)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(to)
	}
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.P50 = fmt.Sprintf("%.1f MB", float64(info.Size())/mb)
	r.Note = "of the working tree"
	r.judge(info.Size() <= 80*mb)
	return r
}
