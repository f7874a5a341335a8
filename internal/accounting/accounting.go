// Package accounting keeps account of what code uses: it turns measurements
// into energy and emissions, and writes them into the ledger, an emissions.csv
// and the outbox of a dashboard. Everything but a footprint happens in the
// background, in batches: no answer waits for it. What is not over, and what
// waits for its batch, is held on disk meanwhile: where the program is killed,
// two seconds of it at most are lost, and the next program books the rest.
package accounting

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/hardware"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

const (
	// flushAfter is how long something waits for its batch.
	flushAfter = 2 * time.Second
	// holdAfter is how long it takes until something is held.
	holdAfter = time.Second
	// short is how long a run takes that shares a line with its like.
	short = 100 * time.Millisecond
	// maxWaiting bounds what is kept while nothing can be written.
	maxWaiting = 20000
	// refreshTimeout bounds the questions to services before a batch, and
	// sendTimeout those to the dashboard when the program ends.
	refreshTimeout = 15 * time.Second
	sendTimeout    = 3 * time.Second
	// sendEvery is how often the outbox is looked at while there is nothing new.
	sendEvery = 30 * time.Second
	// resolution is that of processor times as engines measure them.
	resolution = 10 * time.Millisecond
	// maxGPUs bounds what a place says that it had.
	maxGPUs = 64
	// detail is how long a run keeps a line of its own.
	detail = 31 * 24 * time.Hour
)

// Config is what a Books needs.
type Config struct {
	Ledger  *ledger.Ledger // nil: none is kept
	Model   *carbon.Model
	Tables  *carbon.Tables
	Profile func() carbon.Profile // of this machine; called once, when it is needed
	PUE     carbon.PUE            // of this machine
	Meter   *hardware.Meter       // nil: there are no energy counters; owned by the Books
	Places  *Places
	// Backend returns the name of the engine that runs code here now, which may change.
	Backend func() string
	// CSV and Dashboard are nil where they were not asked for.
	CSV       *codecarbon.File
	Dashboard *codecarbon.Outbox
	// Claims is where it stands which runs on other engines were accounted.
	Claims              store.Dir
	Project, Experiment string
	System, Version     string // of this machine and program, for others' formats
	Keep                time.Duration
	Log                 *slog.Logger
}

// Books keeps account of what the journal says was used. It is safe for
// concurrent use.
type Books struct {
	config   Config
	profile  func() carbon.Profile
	instance string

	mu      sync.Mutex
	runs    []*journal.Used
	rests   []rest
	records []*runs.Record
	open    map[openKey]*journal.Used // what is not in the ledger yet, and not short
	holding *time.Timer               // nil: what is open is held
	unsaved []ledger.Entry            // that could not be written
	closed  bool
	dropped int

	flushing sync.Mutex
	holder   *ledger.Holder  // nil: nothing was held yet
	failing  bool            // the ledger cannot be written
	streams  map[string]bool // of this process, on the dashboard

	begin   sync.Once
	wake    chan struct{}
	end     chan struct{}
	ended   chan struct{}
	life    context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup
	busy    atomic.Bool // sending
}

// openKey tells apart what is open; a rest is an execution without an ID.
type openKey struct {
	kind  string
	name  string
	began int64
}

// rest is what was used while no code of a request ran: by a session's sandbox,
// or by an MCP server.
type rest struct {
	kind  string
	name  string
	spent usage.Usage
}

// Open returns books in which nothing is done until something is put into them,
// or Start is called. Close ends them.
func Open(config Config) *Books {
	b := &Books{
		config: config, instance: strings.ToLower(rand.Text()[:12]), wake: make(chan struct{}, 1),
		end: make(chan struct{}), ended: make(chan struct{}), streams: map[string]bool{}, open: map[openKey]*journal.Used{},
	}
	b.profile = sync.OnceValue(func() carbon.Profile {
		p := config.Profile()
		p.PUE = config.PUE
		return p
	})
	b.life, b.cancel = context.WithCancel(context.Background())
	return b
}

// Start begins to send what earlier processes left for the dashboard. It is
// idempotent.
func (b *Books) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.begin.Do(func() { go b.work() })
	}
}

// Handle receives events of the journal's topic Usages: see [journal.Options].
// Interim reports are held, in case the program is killed.
func (b *Books) Handle(events []journal.Event, _ int) error {
	for _, event := range events {
		e, ok := event.(*journal.Used)
		if !ok {
			continue
		}
		switch e.Kind {
		case journal.ByExecution:
			b.keep(ledger.Run, e.Session, e)
			if !e.Usage.Open {
				b.put(func() { b.runs = append(b.runs, e) })
			}
		case journal.BySession:
			b.used(ledger.Rest, e)
		case journal.ByServer:
			b.used(ledger.Server, e)
		}
	}
	return nil
}

func (b *Books) used(kind string, e *journal.Used) {
	b.keep(kind, e.Name, e)
	if !e.Usage.Open {
		b.put(func() { b.rests = append(b.rests, rest{kind, e.Name, e.Usage}) })
	}
}

// keep sees to it that something is held, in place of what was held of it
// before, until it is in the ledger.
func (b *Books) keep(kind, name string, e *journal.Used) {
	if e.Usage.Wall < short || b.config.Ledger == nil {
		return
	}
	b.Start()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.open) > maxWaiting {
		return
	}
	b.open[openKey{kind, name, e.Usage.Began.UnixNano()}] = e
	if b.holding == nil {
		b.holding = time.AfterFunc(holdAfter, func() {
			b.flushing.Lock()
			defer b.flushing.Unlock()
			b.hold()
		})
	}
}

// hold writes down what is open. The caller holds flushing.
func (b *Books) hold() {
	b.mu.Lock()
	b.holding = nil
	var lines []line
	for k, e := range b.open {
		if k.kind == ledger.Run {
			lines = append(lines, b.runLine(e, e.Usage, 1, 0))
		} else {
			lines = append(lines, b.line(k.kind, k.name, e.Usage))
		}
	}
	b.mu.Unlock()
	var err error
	if b.holder == nil && len(lines) > 0 {
		b.holder, err = b.config.Ledger.Holder(b.instance)
	}
	if err == nil && b.holder != nil {
		err = b.holder.Hold(strip(lines))
	}
	if err != nil {
		b.config.Log.Debug("what runs use cannot be held", "error", err)
	}
}

// recover books what programs held that were killed.
func (b *Books) recover() {
	if b.config.Ledger == nil {
		return
	}
	entries, err := b.config.Ledger.Recover()
	if err != nil {
		b.config.Log.Warn("booking what killed programs used", "error", err)
	}
	if len(entries) == 0 {
		return
	}
	b.config.Log.Info("booked what killed programs used", "lines", len(entries))
	b.flushing.Lock()
	defer b.flushing.Unlock()
	var lines []line
	for _, e := range entries {
		lines = append(lines, b.lineOf(e))
	}
	b.share(lines)
}

func (b *Books) put(add func()) {
	b.Start()
	b.mu.Lock()
	if len(b.runs)+len(b.rests) < maxWaiting {
		add()
	} else {
		b.dropped++
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Footprint returns what the usage of a local execution amounts to.
func (b *Books) Footprint(s usage.Usage) *carbon.Footprint {
	f := b.config.Model.Footprint(b.usage(s), b.profile(), b.config.Places.Here())
	return &f
}

func (b *Books) usage(s usage.Usage) carbon.Usage {
	u := carbon.Usage{Wall: s.Wall, CPU: s.CPU, Resolution: resolution, MemoryBytes: -1,
		Package: b.config.Meter.Between(s.Began, s.Began.Add(s.Wall))}
	if s.ByteSeconds >= 0 && s.Wall > 0 {
		u.MemoryBytes = s.ByteSeconds / s.Wall.Seconds()
	}
	return u
}

// Close writes what is left, and sends what can be sent in a moment. It is
// idempotent, and nothing is accounted after it.
func (b *Books) Close() {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	b.mu.Unlock()
	if !again {
		close(b.end)
	}
	b.begin.Do(func() { // nothing has begun
		b.config.Meter.Close()
		close(b.ended)
	})
	<-b.ended
}

// work writes batches.
func (b *Books) work() {
	defer close(b.ended)
	defer b.config.Meter.Close()
	ticker := time.NewTicker(sendEvery)
	defer ticker.Stop()
	b.recover() // what earlier processes left
	b.send()
	for {
		select {
		case <-b.end:
			b.finish()
			return
		case <-ticker.C:
			b.send()
			continue
		case <-b.wake:
		}
		timer := time.NewTimer(flushAfter)
		select {
		case <-b.end:
			timer.Stop()
			b.finish()
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(b.life, refreshTimeout)
		stop := make(chan struct{})
		go func() { // the end does not wait for services
			select {
			case <-b.end:
				cancel()
			case <-stop:
			}
		}()
		b.config.Places.Refresh(ctx)
		close(stop)
		cancel()
		b.flush()
		b.send()
	}
}

// send lets the outbox go on, unless it is at it. It does not wait: a dashboard
// that does not answer holds up neither the ledger nor the end.
func (b *Books) send() {
	if b.config.Dashboard == nil || !b.busy.CompareAndSwap(false, true) {
		return
	}
	b.sending.Go(func() {
		defer b.busy.Store(false)
		if err := b.config.Dashboard.Send(b.life, false); err != nil && b.life.Err() == nil {
			b.config.Log.Warn("reporting to the dashboard; it is tried again", "error", err)
		}
	})
}

// finish is the end.
func (b *Books) finish() {
	impatient := time.AfterFunc(sendTimeout, b.cancel)
	b.sending.Wait()
	impatient.Stop()
	b.cancel()
	defer b.letGo()
	if b.empty() && len(b.streams) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	b.config.Places.Refresh(ctx)
	b.flush()
	if b.config.Dashboard == nil || len(b.streams) == 0 {
		return
	}
	for key := range b.streams {
		if err := b.config.Dashboard.End(key); err != nil {
			b.config.Log.Warn("the dashboard's outbox", "error", err)
		}
	}
	if err := b.config.Dashboard.Send(ctx, false); err != nil {
		b.config.Log.Info("not all was reported to the dashboard; the next Sallyport goes on (sallyport carbon sync)", "error", err)
	}
}

// letGo ends the holding: everything is in the ledger.
func (b *Books) letGo() {
	b.mu.Lock()
	if b.holding != nil {
		b.holding.Stop()
	}
	b.mu.Unlock()
	b.flushing.Lock()
	defer b.flushing.Unlock()
	if b.holder == nil {
		return
	}
	if err := b.holder.Close(); err != nil {
		b.config.Log.Warn("the ledger", "error", err)
	}
	b.holder = nil
}

func (b *Books) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.runs)+len(b.rests)+len(b.records)+len(b.unsaved) == 0
}

// flush writes everything that has come.
func (b *Books) flush() {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	b.mu.Lock()
	executions, rests, records, entries, dropped := b.runs, b.rests, b.records, b.unsaved, b.dropped
	b.runs, b.rests, b.records, b.unsaved, b.dropped = nil, nil, nil, nil, 0
	b.mu.Unlock()
	if dropped > 0 {
		b.config.Log.Warn("runs were not accounted: there were too many at a time", "runs", dropped)
	}
	fresh := b.entries(executions, rests)
	for _, r := range records {
		if b.claim(r.ID) {
			fresh = append(fresh, b.entryOf(r))
		}
	}
	b.share(fresh)
	entries = append(entries, strip(fresh)...)
	if b.config.Ledger == nil || len(entries) == 0 {
		return
	}
	err := b.config.Ledger.Append(entries)
	b.mu.Lock()
	for _, e := range executions {
		delete(b.open, openKey{ledger.Run, e.Session, e.Usage.Began.UnixNano()})
	}
	for _, r := range rests {
		delete(b.open, openKey{r.kind, r.name, r.spent.Began.UnixNano()})
	}
	b.mu.Unlock()
	b.hold()
	if err != nil {
		b.mu.Lock()
		if len(entries) <= maxWaiting {
			b.unsaved = append(entries, b.unsaved...)
		}
		b.mu.Unlock()
	}
	if err != nil && !b.failing {
		b.config.Log.Warn("the ledger cannot be written", "error", err)
	}
	b.failing = err != nil
	if err == nil {
		if err := b.config.Ledger.Tidy(time.Now(), detail, b.config.Keep); err != nil {
			b.config.Log.Warn("keeping order in the ledger", "error", err)
		}
	}
}

// claim reports whether this run has not been accounted yet.
func (b *Books) claim(id string) bool {
	name := store.FileName(id, "")
	claims, err := b.config.Claims.OpenRoot()
	if err != nil {
		return true
	}
	defer claims.Close()
	f, err := claims.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return !os.IsExist(err)
	}
	_ = f.Close() // nothing is in it
	entries, _ := fs.ReadDir(claims.FS(), ".")
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > claimed {
			_ = claims.Remove(e.Name())
		}
	}
	return true
}

// claimed is how long an accounted run is remembered. Its end is reported again
// for a day.
const claimed = 7 * 24 * time.Hour

// digest names a code.
func digest(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:8])
}

// Digest is what the ledger calls a program.
func Digest(code string) string { return digest(code) }

// uuid makes a run's id for others' formats.
func uuid() string {
	var r [16]byte
	_, _ = rand.Read(r[:]) // never fails
	r[6], r[8] = r[6]&0x0f|0x40, r[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", r[:4], r[4:6], r[6:8], r[8:10], r[10:])
}
