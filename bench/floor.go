package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine is what the figures were measured on.
type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Load   string `json:"load"` // when the run began
}

func describeMachine() machine {
	m := machine{CPU: "unknown CPU", CPUs: runtime.NumCPU(), Kernel: "unknown", Load: "unknown"}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				m.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(raw))
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(raw), " ")
	}
	return m
}

// floors are what the machine does without Sallyport.
type floors struct {
	pipe   sample // a line to another process and back
	python sample // python3 -S -c pass, from its start to its end
	podman sample // podman run of python3, from its start to its end
	direct sample // the echo tool called directly
	gather sample // a hundred calls of 50 ms, sent at once
	big    sample // the 10 MB result, read and decoded

	noPodman string // why there is none
}

func (b *bench) measureFloors() (floors, error) {
	var f floors
	var err error
	if f.pipe, err = b.pipeEcho(); err != nil {
		return f, fmt.Errorf("pipe echo: %w", err)
	}
	f.python, err = repeat(3, b.n/100+20, func() error {
		return b.launch.command(b.python, "-S", "-c", "pass").Run()
	})
	if err != nil {
		return f, fmt.Errorf("%s: %w", b.python, err)
	}
	f.podman, f.noPodman = b.podmanRun()
	c, err := start(b.launch, b.echoserver)
	if err != nil {
		return f, err
	}
	if err := b.directCalls(c, &f); err != nil {
		return f, fmt.Errorf("direct calls: %w", err)
	}
	return f, c.close()
}

// pipeEcho sends a line to a copy of this program and waits for it.
func (b *bench) pipeEcho() (sample, error) {
	c, err := start(b.launch, b.self, "-pipe-echo")
	if err != nil {
		return nil, err
	}
	line := []byte(strings.Repeat("x", 63) + "\n")
	s, err := repeat(200, b.n, func() error {
		if _, err := c.in.Write(line); err != nil {
			return err
		}
		_, err := c.out.ReadSlice('\n')
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, c.close()
}

// echoLines is the other end of pipeEcho.
func echoLines() error {
	r := bufio.NewReader(os.Stdin)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil // the end of input
		}
		if _, err := os.Stdout.Write(line); err != nil {
			return err
		}
	}
}

func (b *bench) directCalls(c *client, f *floors) error {
	if _, err := c.initialize("2025-11-25"); err != nil {
		return err
	}
	var err error
	f.direct, err = repeat(200, b.n, func() error {
		text, err := c.tool("echo", map[string]string{"text": "x"})
		if err == nil && text != "x" {
			err = fmt.Errorf("echo answered %q", text)
		}
		return err
	})
	if err != nil {
		return err
	}
	f.gather, err = repeat(1, b.few(), func() error {
		for range 100 {
			if _, err := c.send("tools/call", map[string]any{"name": "sleep50", "arguments": struct{}{}}); err != nil {
				return err
			}
		}
		for range 100 {
			r, err := receive[toolResult](c)
			if err != nil {
				return err
			}
			if err := r.Result.failure(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.big, err = repeat(1, b.few(), func() error {
		text, err := c.tool("big10mb", struct{}{})
		if err == nil && len(text) != 10_000_000 {
			err = fmt.Errorf("big10mb answered %d bytes", len(text))
		}
		return err
	})
	return err
}

// sandboxTimes runs code that leaves a list of nanoseconds, printed as JSON.
func sandboxTimes(c *client, code string, servers ...string) (sample, error) {
	text, err := c.python(code, servers...)
	if err != nil {
		return nil, err
	}
	return nanoseconds(text)
}

func nanoseconds(text string) (sample, error) {
	var ns []int64
	if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &ns); err != nil {
		return nil, fmt.Errorf("%w in %.300q", err, text)
	}
	s := make(sample, len(ns))
	for i, v := range ns {
		s[i] = time.Duration(v)
	}
	return s, nil
}
