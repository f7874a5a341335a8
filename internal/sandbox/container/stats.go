package container

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// statsAge is how old an engine's figures may be: asking costs a process and, for
// Docker, two seconds.
const statsAge = 2 * time.Second

// remoteMeter asks the engine for a container's usage. Between two answers it
// repeats the last one.
type remoteMeter struct {
	mu     sync.Mutex
	asking chan struct{} // closed when the question under way is answered
	at     time.Time
	last   sandbox.Usage
	err    error
	peak   int64
}

func (g *remoteMeter) usage(ctx context.Context, r *run) (sandbox.Usage, error) {
	g.mu.Lock()
	if !g.at.IsZero() && time.Since(g.at) < statsAge {
		defer g.mu.Unlock()
		return g.last, g.err
	}
	if g.asking == nil {
		g.asking = make(chan struct{})
		r.b.all.Go(func() { g.ask(r) })
	}
	asking, known := g.asking, !g.at.IsZero()
	if known { // the last answer is better than waiting
		defer g.mu.Unlock()
		return g.last, g.err
	}
	g.mu.Unlock()
	select {
	case <-asking:
	case <-ctx.Done():
		return sandbox.Usage{}, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last, g.err
}

func (g *remoteMeter) ask(r *run) {
	ctx, cancel := context.WithTimeout(r.b.life, inspectTime)
	defer cancel()
	out, err := r.b.cli.output(ctx, "stats", "--no-stream", "--format", "{{json .}}", r.name)
	var s stats
	if err == nil {
		s, err = parseStats(out)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.err = err
	if err == nil {
		switch {
		case s.cpu >= 0:
			g.last.CPU = s.cpu
		case !g.at.IsZero():
			// Docker's client reports only a share.
			g.last.CPU += time.Duration(s.share * float64(now.Sub(g.at)))
		}
		g.peak = max(g.peak, s.memory)
		g.last.MemoryBytes, g.last.PeakBytes = s.memory, g.peak
	}
	g.at = now
	close(g.asking)
	g.asking = nil
}

// stats is a container's usage, as the engine reports it.
type stats struct {
	cpu    time.Duration // in total; negative if not reported
	share  float64       // of one core, currently
	memory int64
}

// parseStats reads the output of `stats --no-stream --format '{{json .}}'`: an
// object from Docker, a list from Podman.
func parseStats(data []byte) (stats, error) {
	var s struct {
		CPUPerc  string // Docker's
		MemUsage string
		CPUTime  string `json:"cpu_time"` // Podman's
		Memory   string `json:"mem_usage"`
	}
	data = bytes.TrimSpace(data)
	if bytes.HasPrefix(data, []byte("[")) {
		var list []json.RawMessage
		if err := json.Unmarshal(data, &list); err != nil {
			return stats{}, err
		}
		if len(list) == 0 {
			return stats{}, errNoContainer
		}
		data = list[0]
	}
	line, _, _ := bytes.Cut(data, []byte("\n{"))
	if err := json.Unmarshal(line, &s); err != nil {
		return stats{}, err
	}
	out := stats{cpu: -1}
	if cpu, err := time.ParseDuration(s.CPUTime); err == nil && cpu >= 0 {
		out.cpu = cpu
	} else if share, err := strconv.ParseFloat(strings.TrimSuffix(s.CPUPerc, "%"), 64); err == nil && share >= 0 && share < 1e6 {
		out.share = share / 100
	} else {
		return stats{}, errors.New("stats: the answer has no CPU usage")
	}
	used, _, _ := strings.Cut(cmp.Or(s.MemUsage, s.Memory), "/")
	var err error
	out.memory, err = parseSize(strings.TrimSpace(used))
	return out, err
}

// parseSize reads sizes as engines print them: "12.5MiB", "7.2kB".
func parseSize(s string) (int64, error) {
	units := []struct {
		suffix string
		factor float64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil || !(n >= 0 && n <= 1e6) {
				return 0, errors.New("stats: size " + strconv.Quote(s))
			}
			return int64(n * u.factor), nil
		}
	}
	return 0, errors.New("stats: size " + strconv.Quote(s))
}
