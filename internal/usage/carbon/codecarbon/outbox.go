package codecarbon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// Delta is what was used and emitted in a stretch of time.
type Delta struct {
	Seconds     float64 `json:"seconds"`
	Kilograms   float64 `json:"kg"`
	CPU         float64 `json:"cpuKWh"`
	GPU         float64 `json:"gpuKWh"`
	RAM         float64 `json:"ramKWh"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	ByteSeconds float64 `json:"byteSeconds"`
}

func (d *Delta) add(o Delta) {
	d.Seconds += o.Seconds
	d.Kilograms += o.Kilograms
	d.CPU += o.CPU
	d.GPU += o.GPU
	d.RAM += o.RAM
	d.CPUSeconds += o.CPUSeconds
	d.ByteSeconds += o.ByteSeconds
}

func (d Delta) energy() float64 { return d.CPU + d.GPU + d.RAM }

// sane reports whether a dashboard would take it.
func (d Delta) sane() bool {
	for _, f := range []float64{d.Seconds, d.Kilograms, d.CPU, d.GPU, d.RAM, d.CPUSeconds, d.ByteSeconds} {
		if f < 0 || math.IsNaN(f) || math.IsInf(f, 0) {
			return false
		}
	}
	return true
}

// Stream is what one run of the dashboard is made of: one session's.
type Stream struct {
	Key string // the same for the same run, in every process
	// Once says that the stream ends with this process.
	Once bool
	Run  RunCreate // without a timestamp and an experiment
}

// record is a stream on disk. Whatever is to be sent is written down before it
// is, and what became of it after: whoever reads the record next knows what is
// certain and what is not.
type record struct {
	Version  int       `json:"version"`
	Key      string    `json:"key"`
	Endpoint string    `json:"endpoint"`
	Run      RunCreate `json:"run"`
	RunID    string    `json:"runId,omitempty"`
	// Creating says that the run may exist.
	Creating bool  `json:"creating,omitempty"`
	Pending  Delta `json:"pending"`
	// InFlight may have been taken, where Tried is set.
	InFlight *Emission `json:"inFlight,omitempty"`
	Tried    bool      `json:"tried,omitempty"`
	// TriedAt is when the last request was begun whose end is not known.
	TriedAt time.Time `json:"triedAt,omitzero"`
	// Doubtful may or may not have been taken, and the dashboard does not say.
	Doubtful []Emission `json:"doubtful,omitempty"`
	Last     time.Time  `json:"last,omitzero"` // of the last emission that was taken
	Updated  time.Time  `json:"updated"`
	Final    bool       `json:"final,omitempty"` // nothing will be added
	Sent     int        `json:"sent"`
	Trouble  string     `json:"trouble,omitempty"` // why it is not sent
}

const (
	recordVersion = 1
	recordSuffix  = ".json"
	maxRecord     = 4 << 20
	// lock is held while a record is read and written, never while something is
	// sent. One for all: each leaves a file.
	lock = "outbox"
)

// Options are an Outbox's. Zero values take their defaults.
type Options struct {
	Dir    store.Dir
	Config Config
	Log    *slog.Logger
	// Every is how often a run's emissions are sent, at most: 30 s.
	Every time.Duration
	// Settle is how long after a request of unknown end its end is looked for:
	// 3 s.
	Settle time.Duration
	// Over is when a stream to which nothing is added any more is sent to its end:
	// 2 minutes; and Forget when a new run begins: 24 h.
	Over, Forget time.Duration
	Now          func() time.Time
}

// An Outbox sends what sessions used to the user's dashboard: one run for each
// session, and what was added since in whole seconds. What is in it survives
// the process and is sent once, by whichever process comes next. It is safe
// for concurrent use, also by several processes.
type Outbox struct {
	opts Options
	api  *api
	log  *slog.Logger

	mu    sync.Mutex
	wait  time.Duration // before the next attempt, after failures
	until time.Time
}

// NewOutbox returns an outbox; it sends nothing by itself.
func NewOutbox(opts Options) (*Outbox, error) {
	if err := opts.Config.Ready(); err != nil {
		return nil, err
	}
	a, err := newAPI(&opts.Config)
	if err != nil {
		return nil, err
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&opts.Every, 30 * time.Second}, {&opts.Settle, 3 * time.Second}, {&opts.Over, 2 * time.Minute}, {&opts.Forget, 24 * time.Hour}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Outbox{opts: opts, api: a, log: opts.Log}, nil
}

// fileOf is a stream's name on disk. Another experiment is another run.
func (o *Outbox) fileOf(key string) string {
	return store.FileName(o.opts.Config.ExperimentID[:8]+" "+key, recordSuffix)
}

// Add puts what a session used into the outbox.
func (o *Outbox) Add(s Stream, d Delta) error {
	if !d.sane() || d == (Delta{}) {
		return nil
	}
	name := o.fileOf(s.Key)
	unlock, err := o.opts.Dir.Lock(lock)
	if err != nil {
		return err
	}
	defer unlock()
	now := o.opts.Now()
	r, err := o.load(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || o.stale(r, now) {
		run := s.Run
		run.Timestamp, run.ExperimentID = stamp(now), o.opts.Config.ExperimentID
		r = &record{Version: recordVersion, Key: s.Key, Endpoint: o.opts.Config.Endpoint, Run: run}
	}
	r.Pending.add(d)
	r.Updated, r.Final = now, false
	return o.save(name, r)
}

// stale reports whether a run is over: nothing is left of it, and nothing was added
// to it for long.
func (o *Outbox) stale(r *record, now time.Time) bool {
	return now.Sub(r.Updated) > o.opts.Forget && r.settled() && r.Pending.energy() == 0
}

func (r *record) settled() bool { return r.InFlight == nil && len(r.Doubtful) == 0 && !r.Creating }

// End says that nothing will be added to a stream.
func (o *Outbox) End(key string) error {
	name := o.fileOf(key)
	return o.change(name, func(r *record) { r.Final = true })
}

func (o *Outbox) change(name string, with func(*record)) error {
	unlock, err := o.opts.Dir.Lock(lock)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := o.load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	with(r)
	return o.save(name, r)
}

func (o *Outbox) load(name string) (*record, error) {
	raw, err := o.opts.Dir.Read(name, maxRecord)
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", o.opts.Dir.Path(name), err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("%s: version %d is of another Sallyport", o.opts.Dir.Path(name), r.Version)
	}
	return &r, nil
}

func (o *Outbox) save(name string, r *record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return o.opts.Dir.Write(name, raw)
}

// Status is what the outbox holds.
type Status struct {
	Runs int `json:"runs"`
	// Waiting is the energy, in kWh, that the dashboard has not got yet.
	Waiting  float64  `json:"waitingKWh"`
	Doubtful int      `json:"doubtful"`
	Sent     int      `json:"sent"` // emissions, of these runs
	Troubles []string `json:"troubles,omitempty"`
}

// Status says what is in the outbox.
func (o *Outbox) Status() (Status, error) {
	var s Status
	names, err := o.opts.Dir.List()
	if err != nil {
		return s, err
	}
	for _, name := range names {
		r, err := o.load(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.Troubles = append(s.Troubles, err.Error())
			continue
		}
		s.Runs++
		s.Sent += r.Sent
		s.Waiting += r.Pending.energy()
		if r.InFlight != nil {
			s.Waiting += r.InFlight.Energy
		}
		for _, e := range r.Doubtful {
			s.Waiting += e.Energy
		}
		s.Doubtful += len(r.Doubtful)
		if r.Trouble != "" {
			s.Troubles = append(s.Troubles, r.Key+": "+r.Trouble)
		}
	}
	return s, nil
}

// Send sends what is due. With all set it sends everything, also what is not
// due yet, and less than a second as a whole one; it then ignores that an
// earlier attempt failed a moment ago.
func (o *Outbox) Send(ctx context.Context, all bool) error {
	o.mu.Lock()
	blocked := !all && o.opts.Now().Before(o.until)
	o.mu.Unlock()
	if blocked {
		return nil
	}
	names, err := o.opts.Dir.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		if err := o.sendOne(ctx, name, all); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			if errors.Is(err, errToken) {
				break // every other stream would be refused, too
			}
		}
	}
	err = errors.Join(errs...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.wait, o.until = 0, time.Time{}
		return ctx.Err()
	}
	const least, most = 2 * time.Second, 10 * time.Minute
	o.wait = min(most, max(least, 2*o.wait))
	if Hopeless(err) {
		o.wait = most
	}
	o.until = o.opts.Now().Add(o.wait/2 + rand.N(o.wait))
	return err
}

// sendOne sends a stream as far as it is due. While one process does, others
// leave it alone.
func (o *Outbox) sendOne(ctx context.Context, name string, all bool) error {
	done, ok, err := o.opts.Dir.TryLock(name)
	if err != nil || !ok {
		return err
	}
	defer done()
	for ctx.Err() == nil {
		next, err := o.next(name, all)
		if err != nil || next == nil {
			return err
		}
		outcome, err := next(ctx)
		if saveErr := o.change(name, outcome); saveErr != nil {
			return errors.Join(err, saveErr)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// next decides what is to be done for a stream, writes down that it will be,
// and returns it; nil: nothing.
func (o *Outbox) next(name string, all bool) (step, error) {
	unlock, err := o.opts.Dir.Lock(lock)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := o.load(name)
	if err != nil {
		return nil, err
	}
	now := o.opts.Now()
	if r.Endpoint != o.opts.Config.Endpoint {
		return nil, nil // of another dashboard, whose token this is not
	}
	over := r.Final || since(now, r.Updated) > o.opts.Over
	uncertain := r.Creating || r.InFlight != nil && r.Tried
	switch {
	case uncertain && since(now, r.TriedAt) < o.opts.Settle:
		return nil, fmt.Errorf("%s: a request of a moment ago is still looked for", r.Key)
	case r.RunID == "" && r.Creating:
		return o.lookForRun(*r), nil
	case r.InFlight != nil && r.Tried:
		return o.lookForEmission(*r), nil
	case r.InFlight == nil && !o.due(r, now, over, all):
		if r.settled() && r.Pending.energy() == 0 && (r.Final || now.Sub(r.Updated) > o.opts.Forget) {
			return nil, o.opts.Dir.Remove(name)
		}
		return nil, nil
	case r.RunID == "":
		r.Creating, r.TriedAt = true, now
		if err := o.save(name, r); err != nil {
			return nil, err
		}
		return o.create(r.Run), nil
	}
	if r.InFlight == nil {
		r.take(now, over || all)
	}
	r.Tried, r.TriedAt = true, now
	if err := o.save(name, r); err != nil {
		return nil, err
	}
	return o.post(*r.InFlight), nil
}

// due reports whether something is to be sent.
func (o *Outbox) due(r *record, now time.Time, over, all bool) bool {
	switch {
	case r.Pending.energy() == 0 && r.Pending.Kilograms == 0:
		return false
	case over, all:
		return true
	}
	return r.Pending.Seconds >= 1 && since(now, r.Last) >= o.opts.Every
}

// since is how long ago something was written down. What is far in the future was
// before the clock was set back: nothing waits until the clock is there again.
func since(now, then time.Time) time.Duration {
	ago := now.Sub(then)
	if ago < -time.Minute {
		return -ago
	}
	return ago
}

// take moves what is pending into flight: whole seconds, whose rest waits for
// the next; at the end the rest is made a whole second.
func (r *record) take(now time.Time, last bool) {
	p := r.Pending
	whole := math.Floor(p.Seconds)
	if last {
		whole = math.Ceil(p.Seconds)
	}
	whole = max(1, whole)
	watts := func(kwh float64) float64 { return kwh * joulesPerKWh / whole }
	e := &Emission{
		Timestamp: stamp(now), RunID: r.RunID, Duration: int64(whole),
		Emissions: p.Kilograms, Rate: p.Kilograms / whole,
		CPUPower: watts(p.CPU), GPUPower: watts(p.GPU), RAMPower: watts(p.RAM),
		CPUEnergy: p.CPU, GPUEnergy: p.GPU, RAMEnergy: p.RAM, Energy: p.energy(),
	}
	if n := r.Run.CPUs; n > 0 {
		used := min(100, 100*p.CPUSeconds/max(whole, p.Seconds)/float64(n))
		e.CPUPercent = &used
	}
	if r.Run.RAM > 0 {
		used := min(100, 100*p.ByteSeconds/max(whole, p.Seconds)/(r.Run.RAM*(1<<30)))
		e.RAMPercent = &used
	}
	r.InFlight = e
	r.Pending = Delta{Seconds: max(0, p.Seconds-whole)}
}
