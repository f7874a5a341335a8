package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// An engineSetup is one line of the table of engines.
type engineSetup struct {
	Name string `json:"name"`
	// Env makes Sallyport use the engine.
	Env []string `json:"env"`
	// Floor is a command that starts the same Python on the engine without
	// Sallyport, and ends. Empty: there is none.
	Floor []string `json:"floor"`
}

// runEngines measures the engines that a file lists: a JSON array of setups.
func runEngines(o options, file string, stdout, stderr io.Writer) (err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var setups []engineSetup
	if err := json.Unmarshal(raw, &setups); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(setups) == 0 {
		return fmt.Errorf("%s: no engine to measure", file)
	}
	b, who, err := prepare(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	rep := report{Machine: describeMachine(), User: who}
	b.say("the machine itself")
	python, err := repeat(3, b.n/100+20, func() error {
		return b.launch.command(b.python, "-S", "-c", "pass").Run()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", b.python, err)
	}
	for _, s := range setups {
		b.say(s.Name)
		rep.Rows = append(rep.Rows, b.engineRows(s, python)...)
	}
	return rep.print(o, stdout)
}

// engineRows are the figures of one engine: the first result of a new session
// with nothing prepared, of a new process as a client starts one, and of a call
// in a session that runs.
func (b *bench) engineRows(s engineSetup, python sample) []row {
	first := row{What: s.Name + ": first call of a new session", Floor: "python3 -S -c pass " + show(python.p50())}
	process := row{What: s.Name + ": process start to first result"}
	warm := row{What: s.Name + ": call in a live session"}
	l := b.launch
	l.env = slices.Concat(l.env, s.Env)
	if len(s.Floor) > 0 {
		floor, err := repeat(1, b.few(), func() error {
			out, err := l.command(s.Floor[0], s.Floor[1:]...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %.300s", strings.Join(s.Floor, " "), err, out)
			}
			return err
		})
		if err != nil {
			first.Error = err.Error()
		} else {
			first.Floor += "; on the engine itself " + show(floor.p50())
		}
	}
	one := *b
	one.launch = l

	var times sample
	_, err := repeat(1, b.some(), func() error {
		return one.fresh(b.configs.none, func(c *client) error {
			// The process has answered initialize; let its start be over.
			time.Sleep(100 * ms)
			begin := time.Now()
			err := onePlusOne(c)
			times = append(times, time.Since(begin))
			return err
		})
	})
	first.fillAfterOne(times, err)

	times = nil
	_, err = repeat(1, b.some(), func() error {
		begin := time.Now()
		return one.fresh(b.configs.none, func(c *client) error {
			err := onePlusOne(c)
			times = append(times, time.Since(begin))
			return err
		})
	})
	process.fillAfterOne(times, err)

	err = one.fresh(b.configs.none, func(c *client) error {
		live, err := repeat(50, b.n, func() error { return onePlusOne(c) })
		warm.fill(live, err)
		return err
	})
	if err != nil {
		warm.Error = err.Error()
	}
	return []row{first, process, warm}
}

// fillAfterOne is fill without the first of the sample, which warmed up.
func (r *row) fillAfterOne(s sample, err error) {
	if err == nil && len(s) < 2 {
		err = errors.New("nothing was measured")
	}
	if err != nil {
		r.Error = err.Error()
		return
	}
	if r.Error == "" {
		r.fill(s[1:], nil)
	}
}
