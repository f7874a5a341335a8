package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// anew keeps sandboxes from being restored from a prepared snapshot.
const anew = "SALLYPORT_SESSIONS_SNAPSHOTS=off"

// sleeping measures what snapshots bring: sandboxes that are restored, that
// wait ready, and sessions that come back from disk.
func (b *bench) sleeping(f floors) []row {
	python := f.startFloor()
	rows := []row{
		{What: "first result of a new session, restored", Floor: python},
		{What: "process start to first result, snapshot on disk", Floor: python},
		{What: "first result of a new session, warm pool", Floor: "pipe echo " + show(f.pipe.p50())},
		{What: "print(1+1), live session, p99 while the pool refills", Reach: "<= twice its p99 at rest"},
		{What: "a sleeping session with 64 MB of variables back"},
	}
	rows[0].measure(60*ms, func() (sample, error) {
		s, each, err := b.restoredSessions(1, "print(1+1)", "2")
		rows[0].Note = megabytes(each) + " of memory each"
		return s, err
	})
	rows[1].measure(200*ms, func() (sample, error) {
		return repeat(2, b.some(), func() error {
			return b.serving(b.configs.none, func(c *client) error { return onePlusOne(c) })
		})
	})
	rows[1].Note = "with the process's end"
	rows[2].measure(3*ms, b.pooled)
	rows[3].refilling(b)
	rows[4].measure(100*ms, b.resumed)
	return append(rows, b.withPandas(rows[0].P50), b.manySessions())
}

// measure fills in a row whose p50 is to stay below the limit.
func (r *row) measure(limit time.Duration, f func() (sample, error)) {
	r.Reach = "<= " + show(limit)
	s, err := f()
	r.fill(s, err)
	r.judge(err == nil && s.p50() <= limit)
}

// prepared has a snapshot made for the environment, and waits until there are
// so many.
func (b *bench) prepared(n int, env ...string) error {
	return b.servingWith(env, b.configs.none, func(c *client) error {
		if err := onePlusOne(c); err != nil {
			return err
		}
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * ms) {
			if b.bases() >= n {
				return nil
			}
		}
		return errors.New("no snapshot was made")
	})
}

func (b *bench) bases() int {
	found, _ := filepath.Glob(filepath.Join(b.state(), "snapshots", "base-*"))
	return len(found)
}

func (b *bench) state() string { return filepath.Join(b.launch.dir, ".local", "state", "sallyport") }

// restoredSessions measures the first result of each of many sessions, and the
// memory that each of them adds.
func (b *bench) restoredSessions(bases int, code, want string, env ...string) (s sample, each int64, err error) {
	exe, err := filepath.EvalSymlinks(b.sallyport)
	if err == nil {
		err = b.prepared(bases, env...)
	}
	if err != nil {
		return nil, 0, err
	}
	env = append(env, "SALLYPORT_SESSIONS_MAX_RUNNING=100")
	err = b.servingWith(env, b.configs.none, func(c *client) error {
		var before int64
		for i := range b.some() + 1 {
			name := fmt.Sprintf("s%d-%d", bases, i)
			begin := time.Now()
			if err := c.inSession(name, code, want); err != nil {
				return err
			}
			if i > 0 {
				s = append(s, time.Since(begin))
				continue
			}
			var err error
			if before, _, err = treePSS(c.cmd.Process.Pid, exe); err != nil {
				return err
			}
		}
		after, _, err := treePSS(c.cmd.Process.Pid, exe)
		each = (after - before) / int64(b.some())
		return err
	})
	return s, each, err
}

// inSession runs code in a named session and compares what it prints.
func (c *client) inSession(session, code, want string) error {
	text, err := c.tool("run_python", map[string]any{"code": code, "session": session, "timeout": 60})
	if err == nil && strings.TrimSpace(text) != want {
		err = fmt.Errorf("session %s answered %.200q", session, text)
	}
	return err
}

// pooled measures new sessions that find a sandbox ready.
func (b *bench) pooled() (sample, error) {
	var s sample
	err := b.servingWith([]string{"SALLYPORT_SESSIONS_POOL=1", "SALLYPORT_SESSIONS_MAX_RUNNING=100"}, b.configs.none, func(c *client) error {
		if err := onePlusOne(c); err != nil {
			return err
		}
		for i := range b.some() {
			time.Sleep(700 * ms) // it refills
			begin := time.Now()
			if err := c.inSession(fmt.Sprintf("p%d", i), "print(1+1)", "2"); err != nil {
				return err
			}
			s = append(s, time.Since(begin))
		}
		return nil
	})
	return s, err
}

// refilling compares calls in a session that lives, at rest and while the pool
// is being refilled.
func (r *row) refilling(b *bench) {
	var rest, busy sample
	err := b.servingWith([]string{"SALLYPORT_SESSIONS_POOL=1", "SALLYPORT_SESSIONS_MAX_RUNNING=100"}, b.configs.none, func(c *client) error {
		if err := onePlusOne(c); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		var err error
		if rest, err = repeat(50, b.n, func() error { return onePlusOne(c) }); err != nil {
			return err
		}
		for i := range b.some() {
			if err := c.inSession(fmt.Sprintf("p%d", i), "print(1+1)", "2"); err != nil {
				return err
			}
			for begin := time.Now(); time.Since(begin) < 200*ms; {
				s, err := repeat(0, 1, func() error { return onePlusOne(c) })
				if err != nil {
					return err
				}
				busy = append(busy, s...)
			}
			time.Sleep(300 * ms)
		}
		return nil
	})
	if err != nil {
		r.Error = err.Error()
		return
	}
	r.P50, r.N = show(busy.quantile(0.99)), len(busy)
	r.Floor = "at rest " + show(rest.quantile(0.99))
	r.judge(busy.quantile(0.99) <= 2*rest.quantile(0.99))
}

// resumed measures the first call to a suspended session, in a process that
// runs already.
func (b *bench) resumed() (sample, error) {
	const session = "big"
	err := b.serving(b.configs.none, func(c *client) error {
		return c.inSession(session, "import os; big = os.urandom(64 << 20); print(len(big) >> 20)", "64")
	})
	if err != nil {
		return nil, err
	}
	var s sample
	for range b.some() {
		err := b.serving(b.configs.none, func(c *client) error {
			time.Sleep(200 * ms)
			begin := time.Now()
			err := c.inSession(session, "print(len(big) >> 20)", "64")
			s = append(s, time.Since(begin))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// withPandas measures sessions of an environment with numpy and pandas, which are
// imported in its prepared snapshot, next to the bare sessions of this run.
func (b *bench) withPandas(bare string) row {
	r := row{What: "first pandas result of a new session, restored", Floor: "a bare session " + bare}
	if why := b.dataImage(); why != "" {
		r.Note = "not measured: " + why
		return r
	}
	r.measure(100*ms, func() (sample, error) {
		s, each, err := b.restoredSessions(b.bases()+1, "import pandas\nprint(pandas.DataFrame({'a': [1, 2]}).a.sum())", "3",
			"SALLYPORT_IMAGE="+dataImage, "SALLYPORT_SESSIONS_PRELOAD=numpy,pandas")
		r.Note = megabytes(each) + " of memory each"
		return s, err
	})
	return r
}

const dataImage = "localhost/bench-data:latest"

// dataImage builds the image that an environment with numpy and pandas has, with
// the caller's pip or uv and index. why says what is missing for it.
func (b *bench) dataImage() (why string) {
	cmd := b.launch.command(b.sallyport, "image", "build", "-p", "numpy", "-p", "pandas", "-t", dataImage)
	path := "PATH=/usr/local/bin:/usr/bin:/bin:" + os.Getenv("PATH")
	callers := slices.DeleteFunc(os.Environ(), func(kv string) bool { // they say where files go
		return strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "SALLYPORT_")
	})
	cmd.Env = slices.Concat(callers, cmd.Env, []string{path})
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "numpy and pandas are not available here: " + lines[len(lines)-1]
	}
	return ""
}

func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }

// manySessions has 120 sessions of which 20 are awake, and measures memory and
// disk.
func (b *bench) manySessions() row {
	r := row{What: "100 sessions asleep and 20 awake: PSS / on disk", Reach: "on 4 GB"}
	exe, err := filepath.EvalSymlinks(b.sallyport)
	if err == nil {
		err = b.servingWith([]string{"SALLYPORT_SESSIONS_MAX_RUNNING=20"}, b.configs.none, func(c *client) error {
			const all = 120
			for i := range all {
				if err := c.inSession(fmt.Sprintf("many%d", i), fmt.Sprintf("x = %d; print(x)", i), fmt.Sprint(i)); err != nil {
					return err
				}
			}
			pss, processes, err := treePSS(c.cmd.Process.Pid, exe)
			if err != nil {
				return err
			}
			disk, asleep := b.diskOf("session-many")
			r.P50, r.N = fmt.Sprintf("%.0f / %.0f MB", float64(pss)/1e6, float64(disk)/1e6), all
			r.Note = fmt.Sprintf("%d processes, %d snapshots", processes, asleep)
			r.judge(pss < 3<<30 && asleep == all-20)
			for _, i := range []int{0, 57, all - 1} {
				if err := c.inSession(fmt.Sprintf("many%d", i), "print(x)", fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// diskOf adds up the snapshots whose names begin so.
func (b *bench) diskOf(prefix string) (total int64, n int) {
	found, _ := filepath.Glob(filepath.Join(b.state(), "snapshots", prefix+"*"))
	for _, dir := range found {
		n++
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := os.Stat(path); err == nil {
					total += info.Size()
				}
			}
			return nil
		})
	}
	return total, n
}
