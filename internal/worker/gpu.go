package worker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// GPU describes the machine's GPUs, as nvidia-smi reports them. Nil means none.
type GPU struct {
	Model   string
	Count   int
	program string
}

func (g *GPU) String() string {
	if g.Count > 1 {
		return fmt.Sprintf("%d × %s", g.Count, g.Model)
	}
	return g.Model
}

// FindGPU asks nvidia-smi, by its path, and returns nil where there is no GPU.
func FindGPU(ctx context.Context, program string) *GPU {
	if program == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--query-gpu=name", "--format=csv,noheader")
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	g := &GPU{program: program}
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); name != "" {
			g.Model = name
			g.Count++
		}
	}
	if g.Count == 0 {
		return nil
	}
	return g
}

// powerEvery is how often the GPUs' power is read, in milliseconds.
const powerEvery = 250

// Power computes the energy that GPUs use from samples of their power.
type Power struct {
	cmd    *exec.Cmd
	done   chan struct{}
	count  int // of GPUs
	mu     sync.Mutex
	last   map[int]reading // by the GPU's number
	joules float64
}

type reading struct {
	at    time.Time
	watts float64
}

// Watch starts measuring. It returns nil, which measures nothing, if that is
// impossible.
func (g *GPU) Watch() *Power {
	if g == nil {
		return nil
	}
	p := &Power{done: make(chan struct{}), count: g.Count, last: map[int]reading{}}
	p.cmd = exec.Command(g.program, "--query-gpu=index,power.draw", "--format=csv,noheader,nounits", "--loop-ms="+strconv.Itoa(powerEvery))
	p.cmd.Env = []string{}
	out, err := p.cmd.StdoutPipe()
	if err != nil || p.cmd.Start() != nil {
		return nil
	}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.add(lines.Text(), time.Now())
		}
		_ = p.cmd.Wait()
	}()
	return p
}

// add adds a line "index, watts". The power between two readings is assumed to
// be their mean.
func (p *Power) add(line string, now time.Time) {
	index, watts, found := strings.Cut(line, ",")
	i, err1 := strconv.Atoi(strings.TrimSpace(index))
	w, err2 := strconv.ParseFloat(strings.TrimSpace(watts), 64)
	if !found || err1 != nil || err2 != nil || w < 0 {
		return // "[N/A]": this GPU does not report it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.last[i]; ok {
		p.joules += (before.watts + w) / 2 * now.Sub(before.at).Seconds()
	}
	p.last[i] = reading{now, w}
}

// Stop ends the measurement and returns the joules of all GPUs; 0 is unknown,
// for example if one of them does not report its power.
func (p *Power) Stop() float64 {
	if p == nil {
		return 0
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return p.total(time.Now())
}

func (p *Power) total(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) < p.count {
		return 0
	}
	for _, r := range p.last {
		p.joules += r.watts * now.Sub(r.at).Seconds()
	}
	p.last = nil
	return p.joules
}

// cpuModel returns the processor's name, if the machine reports it.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
