package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A contest is one figure of two executables, measured in turn.
type contest struct {
	what  string
	turns int // pairs of blocks, of which the first warms up
	show  func(time.Duration) string
	// open prepares an executable for turns.
	open opener
}

// compared is what a contest has shown.
type compared struct {
	What   string    `json:"what"`
	Before [2]string `json:"before"` // p50 and p95 of all blocks
	Now    [2]string `json:"now"`
	Ratio  ratio     `json:"ratio"`
	Turns  int       `json:"turns"`
	Error  string    `json:"error,omitempty"`
}

// A ratio of now to before, with an interval of confidence.
type ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func (r ratio) String() string { return fmt.Sprintf("%.3f [%.3f, %.3f]", r.Median, r.Low, r.High) }

const (
	// slower is the ratio above which a figure fails.
	slower = 1.10
	// sure is the confidence that a failure needs; usual that of the table.
	sure, usual = 0.99, 0.95
)

// ratioOf returns the median ratio of pairs of blocks that were measured one after the
// other, so that both saw the same machine. The interval is a bootstrap over pairs.
func ratioOf(before, now []sample, confidence float64) ratio {
	ratios := make([]float64, len(before))
	for i := range before {
		ratios[i] = float64(now[i].p50()) / float64(max(before[i].p50(), 1))
	}
	const resamples = 2000
	random := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, resamples)
	draw := make([]float64, len(ratios))
	for i := range medians {
		for j := range draw {
			draw[j] = ratios[random.IntN(len(ratios))]
		}
		medians[i] = median(draw)
	}
	slices.Sort(medians)
	tail := int((1 - confidence) / 2 * resamples)
	return ratio{median(ratios), medians[tail], medians[resamples-1-tail]}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// run measures a contest: pair is the executable before and the one now.
func (c contest) run(p pair, turns int) (each [2][]sample, err error) {
	var turn [2]func() (sample, error)
	for i, b := range p {
		next, end, openErr := c.open(b)
		if openErr != nil {
			return each, fmt.Errorf("%s: %w", sides[i], openErr)
		}
		if turn[i] = next; end != nil {
			defer func() { err = errors.Join(err, end()) }()
		}
	}
	for i := range turns + 1 {
		for j := range 2 {
			who := (i + j) % 2
			s, err := turn[who]()
			if err != nil {
				return each, fmt.Errorf("%s: %w", sides[who], err)
			}
			if i > 0 {
				each[who] = append(each[who], s)
			}
		}
	}
	return each, nil
}

var sides = [2]string{"before", "now"}

// compare measures a contest and describes it. With fail, a figure that is surely slower
// is measured again, and the error says so if it is slower again.
func (c contest) compare(p pair, fail bool) (compared, error) {
	each, err := c.run(p, c.turns)
	if err != nil {
		return compared{What: c.what, Error: err.Error()}, fmt.Errorf("%s: %w", c.what, err)
	}
	out := compared{What: c.what, Ratio: ratioOf(each[0], each[1], usual), Turns: c.turns}
	for i, to := range []*[2]string{&out.Before, &out.Now} {
		all := slices.Concat(each[i]...)
		*to = [2]string{c.show(all.p50()), c.show(all.p95())}
	}
	if first := ratioOf(each[0], each[1], sure); fail && first.Low > slower {
		again, err := c.run(p, 2*c.turns)
		if err != nil {
			return out, fmt.Errorf("%s: %w", c.what, err)
		}
		return out, verdict(c.what, first, ratioOf(again[0], again[1], sure))
	}
	return out, nil
}

// verdict is an error if a figure was slower twice.
func verdict(what string, first, again ratio) error {
	if first.Low <= slower || again.Low <= slower {
		return nil
	}
	return fmt.Errorf("%s: more than %.0f %% worse, twice: %v and %v of what it was", what, 100*slower-100, first, again)
}

// runCompare measures a commit and the working tree in turn.
func runCompare(o options, rev, only string, fail bool, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "sallyport-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	var p pair
	for i, at := range []string{rev, ""} {
		fmt.Fprintf(stderr, "bench: building %s\n", []string{rev, "the working tree"}[i])
		o.bin = filepath.Join(dir, sides[i])
		if err := build(at, filepath.Join(dir, "source"), o.bin); err != nil {
			return err
		}
		b, _, prepareErr := prepare(o, stderr)
		if prepareErr != nil {
			return prepareErr
		}
		defer func() { err = errors.Join(err, b.endHubs(), os.RemoveAll(b.dir)) }()
		p[i] = b
	}
	var all []compared
	var failures error
	for _, c := range contests() {
		if !strings.Contains(c.what, only) {
			continue
		}
		select {
		case s := <-interrupted:
			return fmt.Errorf("stopped by %v", s)
		default:
		}
		p[1].say(c.what)
		got, err := c.compare(p, fail)
		failures = errors.Join(failures, err)
		all = append(all, got)
	}
	if len(all) == 0 {
		return fmt.Errorf("no figure's name contains %q", only)
	}
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return errors.Join(failures, enc.Encode(all))
	}
	return errors.Join(failures, writeComparison(stdout, all))
}

// build compiles sallyport from a commit, whose files it puts into source; or from the
// working tree, if rev is empty.
func build(rev, source, to string) error {
	if rev != "" {
		if err := os.Mkdir(source, 0o755); err != nil {
			return err
		}
		archive := exec.Command("git", "archive", "--format=tar", rev)
		unpack := exec.Command("tar", "-x", "-C", source)
		var message strings.Builder
		archive.Stderr = &message
		var err error
		if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
			return err
		}
		err = unpack.Start()
		if err == nil {
			err = errors.Join(archive.Run(), unpack.Wait())
		}
		if err != nil {
			return fmt.Errorf("reading commit %s: %w: %s", rev, err, message.String())
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to, "./cmd/sallyport")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if rev != "" {
		cmd.Dir = source
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", to, err, out)
	}
	return nil
}

func writeComparison(w io.Writer, all []compared) error {
	lines := [][]string{{"what", "before p50", "p95", "now p50", "p95", "now / before", "turns"}}
	for _, c := range all {
		if c.Error != "" {
			lines = append(lines, []string{c.What, "", "", "", "", "failed: see below", ""})
			continue
		}
		lines = append(lines, []string{c.What, c.Before[0], c.Before[1], c.Now[0], c.Now[1], c.Ratio.String(), fmt.Sprint(c.Turns)})
	}
	return writeLines(w, lines)
}
