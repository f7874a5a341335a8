package hardware

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// tick is the unit of processor times in /proc/stat.
const tick = 10 * time.Millisecond

const (
	sampleEvery = time.Second
	maxSamples  = 3600
)

// A Meter reads the energy counters of this machine's processors (RAPL) once a
// second, so that what was taken between two moments of the last hour is
// known. It is safe for concurrent use.
type Meter struct {
	root    string
	domains []domain
	end     chan struct{}
	ended   chan struct{}
	once    sync.Once

	mu      sync.Mutex
	samples []sample
}

// domain is one package's counter.
type domain struct {
	path string
	most uint64 // it begins at 0 again after this
	last uint64
}

type sample struct {
	at     time.Time
	joules float64
	busy   time.Duration
}

// ErrNoCounters: there are none here, or this user may not read them.
var ErrNoCounters = errors.New("there are no energy counters that can be read (RAPL; since Linux 5.10 root alone reads them)")

// NewMeter begins to read. root is "/" but in tests. Close ends it.
func NewMeter(root string) (*Meter, error) {
	m, err := find(root)
	if err != nil {
		return nil, err
	}
	m.end, m.ended = make(chan struct{}), make(chan struct{})
	m.sample(time.Now())
	go m.work()
	return m, nil
}

// find finds the packages' counters. The same package may be there twice: by
// its registers and by memory, or once for each of its dies.
func find(root string) (*Meter, error) {
	m := &Meter{root: root}
	dirs, err := filepath.Glob(filepath.Join(root, "sys/class/powercap/intel-rapl*:*"))
	if err != nil {
		return nil, err
	}
	// The registers first: what memory shows is the same.
	slices.SortFunc(dirs, func(a, b string) int {
		mmio := func(s string) string { return strings.ReplaceAll(filepath.Base(s), "-mmio", "~") }
		return strings.Compare(mmio(a), mmio(b))
	})
	seen := map[string]bool{}
	for _, dir := range dirs {
		if strings.Count(filepath.Base(dir), ":") != 1 {
			continue // a part of a package
		}
		name := text(filepath.Join(dir, "name"))
		if !strings.HasPrefix(name, "package") || seen[name] {
			continue
		}
		d := domain{path: filepath.Join(dir, "energy_uj"), most: number(filepath.Join(dir, "max_energy_range_uj"))}
		now, ok := read(d.path)
		if !ok {
			continue
		}
		if slices.ContainsFunc(m.domains, func(o domain) bool { return mirrors(o.last, now) }) {
			continue
		}
		seen[name] = true
		d.last = now
		m.domains = append(m.domains, d)
	}
	if len(m.domains) == 0 {
		return nil, ErrNoCounters
	}
	return m, nil
}

// mirrors reports whether two counters, in microjoules, show the same package.
func mirrors(a, b uint64) bool {
	return math.Abs(float64(a)-float64(b)) <= max(1e6, 1e-6*float64(max(a, b)))
}

func text(path string) string {
	raw, _ := os.ReadFile(path) // what is not there says nothing
	return strings.TrimSpace(string(raw))
}

func number(path string) uint64 {
	n, _ := strconv.ParseUint(text(path), 10, 64)
	return n
}

func read(path string) (uint64, bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n, err == nil
}

func (m *Meter) work() {
	defer close(m.ended)
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-m.end:
			return
		case <-ticker.C:
			m.sample(time.Now())
		}
	}
}

// Close ends the reading. It is idempotent.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	m.once.Do(func() { close(m.end) })
	<-m.ended
}

// sample adds what was taken since the last sample. A reading that fails or
// makes no sense leaves the sum as it is.
func (m *Meter) sample(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := sample{at: now, busy: busy(filepath.Join(m.root, "proc/stat"))}
	if n := len(m.samples); n > 0 {
		s.joules = m.samples[n-1].joules
	}
	for i := range m.domains {
		d := &m.domains[i]
		got, ok := read(d.path)
		if !ok {
			continue
		}
		delta := got - d.last
		if got < d.last {
			if d.most == 0 || d.last > d.most {
				d.last = got
				continue
			}
			delta = d.most - d.last + got
		}
		d.last = got
		s.joules += float64(delta) / 1e6
	}
	m.samples = append(m.samples, s)
	if len(m.samples) > maxSamples {
		m.samples = slices.Delete(m.samples, 0, len(m.samples)-maxSamples)
	}
}

// busy is the processor time of all that ran on the machine.
func busy(path string) time.Duration {
	line, _, _ := strings.Cut(text(path), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	var ticks uint64
	for i, v := range f[1:9] {
		if i == 3 || i == 4 { // idle, waiting for a disk
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// has reports whether there is a sample of that moment or after it: one more would
// cost the oldest its place.
func (m *Meter) has(moment time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.samples)
	return n > 0 && !m.samples[n-1].at.Before(moment)
}

// Between is what the processors took in the shortest time that was measured
// and has both moments in it; nil where that is not known.
func (m *Meter) Between(from, to time.Time) *carbon.Package {
	if m == nil {
		return nil
	}
	if !m.has(to) {
		m.sample(time.Now())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first, last := -1, -1
	for i, s := range m.samples {
		if !s.at.After(from) {
			first = i
		}
		if last < 0 && !s.at.Before(to) {
			last = i
		}
	}
	if first < 0 || last <= first {
		return nil
	}
	a, b := m.samples[first], m.samples[last]
	return &carbon.Package{Joules: b.joules - a.joules, Wall: b.at.Sub(a.at), Busy: b.busy - a.busy}
}
