package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/snapshot"
	"sallyport/internal/wire"
)

const (
	// basePrefix begins the names of the snapshots that fresh sandboxes are
	// restored from.
	basePrefix = "base-"
	// keepBases is how many of them are kept: of other interpreters, limits,
	// versions of this program. The oldest go first.
	keepBases = 4
	// baseDelay lets the first executions pass before a base is prepared.
	baseDelay = time.Second
	// preloadTimeout bounds the import of the modules that a base has.
	preloadTimeout = 2 * time.Minute
)

// base is the snapshot of a sandbox that has just got ready: interpreter,
// guest and preloaded modules. A fresh sandbox is restored from it, which takes
// less than a start. Where there is none, one is prepared in the background,
// for the next time.
type base struct {
	config   Config
	restorer sandbox.Restorer
	store    *snapshot.Store
	log      *slog.Logger

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	prepared bool // or being prepared, or of no use: once is enough
}

// baseNote is what a restored guest's host must know.
type baseNote struct {
	Ready wire.Ready `json:"ready"`
}

// newBase returns nil where fresh sandboxes cannot be restored.
func newBase(config Config) *base {
	restorer, ok := sandbox.As[sandbox.Restorer](config.Backend)
	if !ok || config.Snapshots == nil || !config.Restore {
		return nil
	}
	b := &base{config: config, restorer: restorer, store: config.Snapshots, log: config.Logger}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

func (b *base) close() {
	if b == nil {
		return
	}
	b.end()
	b.all.Wait()
}

// name is where the snapshot for a binding lies.
func (b *base) name(binding string) string {
	h := sha256.Sum256([]byte(binding))
	return basePrefix + hex.EncodeToString(h[:12])
}

// binding is what the engine says, and what this package adds.
func (b *base) binding(ctx context.Context, spec *sandbox.Spec) (string, error) {
	text, err := b.restorer.Binding(ctx, spec)
	if err != nil {
		return "", err
	}
	return text + "\npreload: " + strings.Join(b.config.Preload, " "), nil
}

// restore starts a sandbox from the base. It returns nil where there is none:
// then the caller starts one anew.
func (b *base) restore(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, *baseNote) {
	if b == nil {
		return nil, nil
	}
	binding, err := b.binding(ctx, spec)
	if err != nil {
		b.log.Debug("no snapshot to start from", "reason", err)
		return nil, nil
	}
	name := b.name(binding)
	found, err := b.store.Open(name, binding)
	if err != nil {
		if !errors.Is(err, snapshot.ErrNone) {
			b.log.Warn("the prepared snapshot cannot be used; it is made anew", "reason", err)
			_ = b.store.Remove(name)
		}
		return nil, nil
	}
	defer found.Close()
	var note baseNote
	if err := json.Unmarshal(found.Note, &note); err != nil {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, b.config.StartTimeout)
	defer cancel()
	run, err := b.restorer.Restore(within, spec, image(found))
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("restoring the prepared snapshot failed; it is made anew", "error", err)
			_ = b.store.Remove(name)
		}
		return nil, nil
	}
	return run, &note
}

// image is a snapshot as engines take it.
func image(s *snapshot.Snapshot) sandbox.Image {
	return sandbox.Image{Files: s.Files(), Check: s.Check}
}

// want has a base prepared after a sandbox had to be started without one.
func (b *base) want() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.prepared || b.life.Err() != nil {
		return
	}
	b.prepared = true
	b.all.Go(func() {
		select {
		case <-time.After(baseDelay):
		case <-b.life.Done():
			return
		}
		began := time.Now()
		if err := b.prepare(b.life); err != nil {
			if b.life.Err() == nil {
				b.log.Warn("no snapshot could be prepared; sandboxes are started without", "error", err)
			}
			return
		}
		b.log.Debug("snapshot prepared", "duration", time.Since(began))
	})
}

// prepare starts a sandbox, lets it import what is to be there, and keeps its
// snapshot.
func (b *base) prepare(ctx context.Context) error {
	spec := b.config.Spec
	spec.ID = newID()
	binding, err := b.binding(ctx, &spec)
	if err != nil {
		return err
	}
	if found, err := b.store.Open(b.name(binding), binding); err == nil {
		defer found.Close()
		if found.Check(ctx) == nil {
			return nil // another process was faster
		}
	}
	started, err := launch(ctx, b.config, b.log, ctx.Done())
	if err != nil {
		return err
	}
	defer started.destroy()
	if err := started.warm(ctx, b.config.Preload); err != nil {
		return err
	}
	snapshotter, ok := sandbox.As[sandbox.Snapshotter](started.run)
	if !ok {
		return errors.New("the engine restores snapshots and takes none")
	}
	ready, err := started.conn.Ready(ctx)
	if err != nil {
		return err
	}
	err = b.store.Write(b.name(binding), binding, snapshot.Plain, baseNote{Ready: ready}, func(dir string) error {
		return snapshotter.Snapshot(ctx, dir, false)
	})
	if err == nil {
		b.tidy()
	}
	return err
}

// warm runs code in a fresh sandbox, so that the snapshot has what every first
// execution needs, and imports the modules.
func (b *box) warm(ctx context.Context, modules []string) error {
	ctx, cancel := context.WithTimeout(ctx, preloadTimeout)
	defer cancel()
	var code strings.Builder
	for _, m := range modules {
		fmt.Fprintf(&code, "__import__(%q) and None\n", m)
	}
	tail := &warmOutput{}
	running, err := b.conn.Start(guest.Exec{Code: code.String(), Filename: "<preload>", Reseed: entropy()}, tail)
	if err != nil {
		return err
	}
	select {
	case <-running.Done():
	case <-ctx.Done():
		return fmt.Errorf("importing %s: %w", strings.Join(modules, ", "), context.Cause(ctx))
	}
	outcome, err := running.Result()
	if err != nil {
		return err
	}
	if outcome.Status != wire.StatusOK {
		return fmt.Errorf("importing %s failed: %s", strings.Join(modules, ", "), strings.TrimSpace(tail.text))
	}
	return nil
}

// warmOutput keeps the end of what preloading wrote.
type warmOutput struct{ text string }

func (w *warmOutput) Output(_ guest.Stream, p []byte) {
	const most = 2 << 10
	w.text += string(p)
	w.text = w.text[max(0, len(w.text)-most):]
}

func (w *warmOutput) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no calls while modules are preloaded"}
}

// tidy removes the oldest bases when there are too many.
func (b *base) tidy() {
	list, err := b.store.List()
	if err != nil {
		return
	}
	var bases []snapshot.Entry
	for _, e := range list {
		if strings.HasPrefix(e.Name, basePrefix) {
			bases = append(bases, e)
		}
	}
	for len(bases) > keepBases {
		oldest := 0
		for i, e := range bases {
			if e.Time.Before(bases[oldest].Time) {
				oldest = i
			}
		}
		_ = b.store.Remove(bases[oldest].Name)
		bases = append(bases[:oldest], bases[oldest+1:]...)
	}
}

// entropy is what a sandbox is reseeded with.
func entropy() string {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return hex.EncodeToString(seed[:])
}
