package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// shared has clients share a hub; without it each has a process of its own.
const shared = "SALLYPORT_HUB_ENABLED=true"

// manyClients is how many clients hubRows connects.
const manyClients = 10

// hubRows are the figures of the process that all clients share, each next to
// clients that share nothing, in the same run.
func (b *bench) hubRows() []row {
	rows := []row{
		{What: "print(1+1), live session, through the hub", Reach: "<= 0.35 / 1 ms"},
		{What: "process start to first result, hub running, pool auto", Reach: "<= 20 ms"},
		{What: "process start to first answer, which starts the hub", Reach: "<= 100 ms over a process of its own"},
		{What: fmt.Sprintf("%d clients x 5 servers: processes of servers / PSS for one client more", manyClients), Reach: "5 / 4 MB"},
	}
	for i, measure := range []func(*row) error{b.warmHub, b.firstOfHub, b.startOfHub, b.clients} {
		err := measure(&rows[i])
		if err = errors.Join(err, b.endHubs()); err != nil {
			rows[i].Error = err.Error()
		}
	}
	return rows
}

// endHubs ends the hubs of this run.
func (b *bench) endHubs() error {
	out, err := b.launch.command(b.sallyport, "hub", "stop", "--all", "--wait", "0s").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// warmHub compares blocks of calls in turn, so that both see the same machine.
func (b *bench) warmHub(r *row) error {
	return b.servingWith(nil, b.configs.none, func(own *client) error {
		return b.servingWith([]string{shared}, b.configs.none, func(through *client) error {
			var each [2]sample
			for i := range b.n/block + 2 {
				for j := range 2 {
					who := (i + j) % 2 // in changing order
					s, err := repeat(1, block, func() error { return onePlusOne([]*client{own, through}[who]) })
					if err != nil {
						return err
					}
					if i > 0 {
						each[who] = append(each[who], s...)
					}
				}
			}
			over := each[1].p50() - each[0].p50()
			r.fill(each[1], nil)
			r.Floor = "a process of its own " + show(each[0].p50()) + " / " + show(each[0].p95())
			r.Note = "over it by " + show(over)
			r.judge(each[1].p50() <= 35*ms/100 && each[1].p95() <= ms)
			return nil
		})
	})
}

// firstOfHub measures new clients of a hub that has a sandbox ready.
func (b *bench) firstOfHub(r *row) error {
	env := []string{shared, "SALLYPORT_SESSIONS_POOL=auto"}
	return b.servingWith(env, b.configs.none, func(c *client) error {
		if err := onePlusOne(c); err != nil {
			return err
		}
		var s sample
		for range b.some() {
			time.Sleep(700 * ms) // it refills
			begin := time.Now()
			err := b.servingWith(env, b.configs.none, func(c *client) error {
				err := onePlusOne(c)
				s = append(s, time.Since(begin))
				return err
			})
			if err != nil {
				return err
			}
		}
		r.fill(s, nil)
		r.judge(s.p50() <= 20*ms)
		return nil
	})
}

// startOfHub measures how long a client waits for its first answer where no hub
// runs.
func (b *bench) startOfHub(r *row) error {
	var each [2]sample
	for range b.some() {
		for i, env := range [][]string{nil, {shared}} {
			if err := b.endHubs(); err != nil {
				return err
			}
			begin := time.Now()
			err := b.launched(env, b.configs.none, func(c *client) error {
				_, err := c.initialize("2025-11-25")
				each[i] = append(each[i], time.Since(begin))
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	over := each[1].p50() - each[0].p50()
	r.fill(each[1], nil)
	r.Floor = "a process of its own " + show(each[0].p50())
	r.Note = "over it by " + show(over)
	r.judge(over <= 100*ms)
	return nil
}

// clients connects many clients that use all servers.
func (b *bench) clients(r *row) error {
	exe, err := filepath.EvalSymlinks(b.sallyport)
	if err != nil {
		return err
	}
	var notes []string
	for _, env := range [][]string{nil, {shared}} {
		var begin, end int64
		err := b.connected(env, manyClients, func(i int) (err error) {
			time.Sleep(1500 * ms) // a frontend gives memory back
			switch i {
			case 1:
				begin, _, err = treePSS(os.Getpid(), exe)
			case manyClients:
				end, _, err = treePSS(os.Getpid(), exe)
			}
			return err
		})
		if err != nil {
			return err
		}
		servers := b.echoServers
		more := float64(end-begin) / (manyClients - 1) / 1e6
		text := fmt.Sprintf("%d / %.1f MB", servers, more)
		if env == nil {
			notes = append(notes, "each with a process of its own "+text)
			continue
		}
		r.P50, r.N = text, 1
		r.judge(servers == 5 && more <= 4)
	}
	r.Floor = strings.Join(notes, "")
	return nil
}

// connected calls each with the number of clients that are connected and have
// called every server, without the memory of their sandboxes, which have ended.
func (b *bench) connected(env []string, n int, each func(int) error) error {
	var connect func(i int) error
	connect = func(i int) error {
		if i > n {
			b.echoServers = running(b.echoserver)
			return nil
		}
		return b.servingWith(env, b.configs.five, func(c *client) error {
			const all = `
for i in range(5):
    s = await runtime.call_tool(f"bench{i}", "echo", {"text": "x"})
print(s["content"][0]["text"])`
			if text, err := c.python(all); err != nil || strings.TrimSpace(text) != "x" {
				return fmt.Errorf("client %d: got %q, %v", i, text, err)
			}
			if err := c.endSandbox(); err != nil {
				return err
			}
			if err := each(i); err != nil {
				return err
			}
			return connect(i + 1)
		})
	}
	return connect(1)
}

// endSandbox has the sandbox of the default session end.
func (c *client) endSandbox() error {
	_, err := c.tool("run_python", map[string]any{"code": "import os\nos._exit(0)"})
	if err == nil || !strings.Contains(err.Error(), "the tool failed") {
		return fmt.Errorf("the sandbox did not end: %v", err)
	}
	return nil
}

// running counts the processes that run an executable.
func running(exe string) (n int) {
	found, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range found {
		if to, err := os.Readlink(p); err == nil && to == exe {
			n++
		}
	}
	return n
}
