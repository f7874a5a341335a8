package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tiktoken-go/tokenizer"
)

// block is how many fast calls one turn makes: one after the other, as a session makes
// them, with everything in the processor's caches.
const block = 50

// contests are the figures of the table that two executables can be compared by.
func contests() []contest {
	roomy := []string{"SALLYPORT_SESSIONS_MAX_RUNNING=100"}
	pool := append([]string{"SALLYPORT_SESSIONS_POOL=1"}, roomy...)
	auto := []string{shared, "SALLYPORT_SESSIONS_POOL=auto"}
	calls := func(c *client) (sample, error) { return repeat(1, block, func() error { return onePlusOne(c) }) }
	newSession := func(c *client) (sample, error) {
		return timed(func() error { return c.inSession(fmt.Sprintf("n%x", rand.Uint64()), "print(1+1)", "2") })
	}
	loop := func(code string, n int) func(c *client) (sample, error) {
		return func(c *client) (sample, error) { return sandboxTimes(c, fmt.Sprintf(code, n), "bench0") }
	}
	return []contest{
		{"print(1+1), live session", 40, show, during(nil, one, calls)},
		{"print(1+1), live session, through the hub", 40, show, during([]string{shared}, one, calls)},
		{"tool call from the sandbox and back", 20, show, during(nil, one, loop(callLoop, 10*block))},
		{"100 gathered calls of 50 ms each", 12, show, during(nil, one, loop(gatherLoop, 1))},
		{"a 10 MB result, then its len", 30, show, during(nil, one, loop(bigLoop, 1))},
		{"1000 small files in /workspace", 12, show, during(nil, one, func(c *client) (sample, error) { return sandboxTimes(c, smallFiles) })},
		{"process start to first result, nothing prepared", 15, show, each([]string{anew}, nil)},
		{"process start to first result, snapshot on disk", 15, show, after(1, nil, each(nil, nil))},
		{"first result of a new session, restored", 12, show, after(1, nil, during(roomy, none, func(c *client) (sample, error) {
			time.Sleep(1200 * ms) // the last one's processes settle
			return newSession(c)
		}))},
		{"first result of a new session, warm pool", 15, show, after(1, nil, during(pool, none, func(c *client) (sample, error) {
			time.Sleep(700 * ms) // it refills
			return newSession(c)
		}))},
		{"process start to first result, hub running, pool auto", 15, show, joined(auto, each(auto, func() { time.Sleep(700 * ms) }))},
		{"process start to first answer, which starts the hub", 12, show, func(b *bench) (func() (sample, error), func() error, error) {
			return func() (sample, error) {
				if err := b.endHubs(); err != nil {
					return nil, err
				}
				return b.firstOf([]string{shared}, func(*client) error { return nil })
			}, b.endHubs, nil
		}},
		{"a sleeping session with 64 MB of variables back", 15, show, asleep},
		{"idle PSS: server alone", 4, megabytesOf, idle(false)},
		{"idle PSS: one bare session more", 4, megabytesOf, idle(true)},
		{"tools/list and instructions, tokens at most", 1, tokensOf, tokens},
		{"executable, stripped", 1, megabytesOf, size},
	}
}

func megabytesOf(n time.Duration) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
func tokensOf(n time.Duration) string    { return fmt.Sprint(int64(n)) }

// An opener prepares an executable. Each turn returns one block of a figure, in
// nanoseconds or bytes. end may be nil.
type opener = func(b *bench) (turn func() (sample, error), end func() error, err error)

func none(b *bench) string { return b.configs.none }
func one(b *bench) string  { return b.configs.one }

// during takes its turns in one process that serves and has a session.
func during(env []string, config func(*bench) string, turn func(*client) (sample, error)) opener {
	return func(b *bench) (func() (sample, error), func() error, error) {
		c, err := b.open(env, config(b))
		if err != nil {
			return nil, nil, err
		}
		end := func() error { return errors.Join(c.close(), b.endHubs()) }
		if err := onePlusOne(c); err != nil {
			return nil, nil, errors.Join(err, end())
		}
		return func() (sample, error) { return turn(c) }, end, nil
	}
}

// each starts a process for each turn, until its first result.
func each(env []string, before func()) opener {
	return func(b *bench) (func() (sample, error), func() error, error) {
		return func() (sample, error) {
			if before != nil {
				before()
			}
			return b.firstOf(env, onePlusOne)
		}, nil, nil
	}
}

// firstOf times the start of a process that serves, its handshake, and f.
func (b *bench) firstOf(env []string, f func(*client) error) (s sample, err error) {
	begin := time.Now()
	err = b.servingWith(env, b.configs.none, func(c *client) error {
		err := f(c)
		s = sample{time.Since(begin)}
		return err
	})
	return s, err
}

// after has prepared snapshots made first.
func after(n int, env []string, open opener) opener {
	return func(b *bench) (func() (sample, error), func() error, error) {
		if err := b.prepared(n, env...); err != nil {
			return nil, nil, err
		}
		return open(b)
	}
}

// joined takes the turns while another client is connected.
func joined(env []string, open opener) opener {
	return func(b *bench) (func() (sample, error), func() error, error) {
		c, err := b.open(env, b.configs.none)
		if err != nil {
			return nil, nil, err
		}
		end := func() error { return errors.Join(c.close(), b.endHubs()) }
		if err := onePlusOne(c); err != nil {
			return nil, nil, errors.Join(err, end())
		}
		turn, _, err := open(b)
		return turn, end, err
	}
}

// asleep takes its turns with a session that has 64 MB of variables.
func asleep(b *bench) (func() (sample, error), func() error, error) {
	const session = "big"
	err := b.serving(b.configs.none, func(c *client) error {
		return c.inSession(session, "import os; big = os.urandom(64 << 20); print(len(big) >> 20)", "64")
	})
	return func() (s sample, err error) {
		err = b.serving(b.configs.none, func(c *client) (err error) {
			time.Sleep(200 * ms)
			s, err = timed(func() error { return c.inSession(session, "print(len(big) >> 20)", "64") })
			return err
		})
		return s, err
	}, nil, err
}

func idle(session bool) opener {
	return func(b *bench) (func() (sample, error), func() error, error) {
		return func() (sample, error) {
			alone, more, err := b.idlePSS()
			if session {
				return sample{time.Duration(more)}, err
			}
			return sample{time.Duration(alone)}, err
		}, nil, nil
	}
}

// once is a figure that needs no repetition.
func once(n int64, err error) (func() (sample, error), func() error, error) {
	return func() (sample, error) { return sample{time.Duration(n)}, nil }, nil, err
}

func tokens(b *bench) (func() (sample, error), func() error, error) {
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return once(0, err)
	}
	_, most, _, _, err := b.tokens(enc)
	return once(int64(most), err)
}

func size(b *bench) (func() (sample, error), func() error, error) {
	info, err := os.Stat(filepath.Join(b.dir, "sallyport"))
	if err != nil {
		return once(0, err)
	}
	return once(info.Size(), nil)
}

// smallFiles writes and reads files, in /workspace or the directory that it is given. It
// times itself, like the loops of rows.go.
const smallFiles = `
import json, os, sys, tempfile, time
with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else ".") as _d:
    _t = time.perf_counter_ns()
    for _i in range(1000):
        with open(os.path.join(_d, str(_i)), "w") as _f:
            _ = _f.write("x" * 100)
    for _i in range(1000):
        with open(os.path.join(_d, str(_i))) as _f:
            assert len(_f.read()) == 100
    _t = time.perf_counter_ns() - _t
print(json.dumps([_t]))
`
