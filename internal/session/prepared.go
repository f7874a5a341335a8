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

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// keepPrepared is how many prepared snapshots are kept, for different
	// environments, interpreters, limits and versions of this program. Those unused
	// for longest are removed first: environments that are in use stay, however many
	// others are built. A bare one takes 7 MB, one with pandas about 50 MB.
	keepPrepared = 12
	// prepareDelay lets the first executions pass before a snapshot is
	// prepared.
	prepareDelay = time.Second
	// preloadTimeout bounds the import of the modules in a prepared snapshot.
	preloadTimeout = 2 * time.Minute
)

// preparedSnapshot is the snapshot of a sandbox that has just become ready:
// interpreter, guest and preloaded modules. Restoring a fresh sandbox from it
// is faster than starting one. If it does not exist, it is prepared in the
// background for the next time.
type preparedSnapshot struct {
	config   config
	restorer func() sandbox.Restorer // see shared.restorer
	store    *snapshot.Store
	log      *slog.Logger

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	prepared bool // or being prepared, or failed: once is enough
}

// ErrPreload reports modules that cannot be preloaded. Sandboxes start without them.
var ErrPreload = errors.New("not preloaded")

// preparedNote is what the host of a restored guest needs to know.
type preparedNote struct {
	Ready wire.Ready `json:"ready"`
}

// newPreparedSnapshot returns nil where fresh sandboxes cannot be restored.
func newPreparedSnapshot(config config, restorer func() sandbox.Restorer) *preparedSnapshot {
	if !config.Restore || restorer() == nil {
		return nil
	}
	b := &preparedSnapshot{config: config, restorer: restorer, store: config.Snapshots, log: config.Logger}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

func (b *preparedSnapshot) close() {
	if b == nil {
		return
	}
	b.end()
	b.all.Wait()
}

// name returns the name of the snapshot for a binding.
func (b *preparedSnapshot) name(binding string) string {
	h := sha256.Sum256([]byte(binding))
	return hibernate.PreparedPrefix + hex.EncodeToString(h[:12])
}

// binding returns the engine's binding and what this package adds.
func (b *preparedSnapshot) binding(ctx context.Context, restorer sandbox.Restorer, spec *sandbox.Spec) (string, error) {
	if restorer == nil {
		return "", errors.New("this engine cannot restore sandboxes")
	}
	text, err := restorer.Binding(ctx, spec)
	if err != nil {
		return "", err
	}
	return text + "\npreload: " + strings.Join(b.config.Preload, " "), nil
}

// restore starts a sandbox from the prepared snapshot. It returns nil if that
// does not exist; the caller then starts a new sandbox.
func (b *preparedSnapshot) restore(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, *preparedNote) {
	if b == nil {
		return nil, nil
	}
	restorer := b.restorer()
	binding, err := b.binding(ctx, restorer, spec)
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
	var note preparedNote
	if err := json.Unmarshal(found.Note, &note); err != nil {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, b.config.StartTimeout)
	defer cancel()
	run, err := restorer.Restore(within, spec, image(found))
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("restoring the prepared snapshot failed; it is made anew", "error", err)
			_ = b.store.Remove(name)
		}
		return nil, nil
	}
	_ = b.store.Touch(name, time.Now()) // see tidy
	return run, &note
}

// image returns a snapshot in the form that engines take.
func image(s *snapshot.Snapshot) sandbox.Image {
	return sandbox.Image{Files: s.Files(), Check: s.Check}
}

// want requests the preparation of a snapshot after a sandbox had to be started
// without one.
func (b *preparedSnapshot) want() {
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
		case <-time.After(prepareDelay):
		case <-b.life.Done():
			return
		}
		began := time.Now()
		err := b.prepare(b.life)
		switch {
		case b.life.Err() != nil:
		case errors.Is(err, ErrPreload):
			b.log.Warn("modules cannot be preloaded; sandboxes start without them", "error", err)
		case err != nil:
			b.log.Warn("no snapshot could be prepared; sandboxes are started without", "error", err)
		default:
			b.log.Debug("snapshot prepared", "duration", time.Since(began))
		}
	})
}

// now prepares the snapshot and waits for it.
func (b *preparedSnapshot) now(ctx context.Context) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	if b.life.Err() != nil {
		b.mu.Unlock()
		return ErrClosed
	}
	b.prepared = true
	b.all.Add(1)
	b.mu.Unlock()
	defer b.all.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	return b.prepare(ctx)
}

// prepare starts a sandbox, imports the preloaded modules in it, and keeps its
// snapshot.
func (b *preparedSnapshot) prepare(ctx context.Context) error {
	spec := b.config.spec()
	engine := b.config.Engine.Name() // before the binding: see below
	binding, err := b.binding(ctx, b.restorer(), &spec)
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
	if engine != started.run.Handle().Backend { // then the binding is not that of this sandbox
		return fmt.Errorf("the engine changed from %s to %s", engine, started.run.Handle().Backend)
	}
	unloaded := started.warm(ctx, b.config.Preload)
	if unloaded != nil && !errors.Is(unloaded, ErrPreload) {
		return unloaded
	}
	snapshotter, ok := sandbox.As[sandbox.Snapshotter](started.run)
	if !ok {
		return errors.New("the engine restores snapshots and takes none")
	}
	ready, err := started.conn.Ready(ctx)
	if err != nil {
		return err
	}
	err = b.store.Write(b.name(binding), binding, snapshot.Plain, preparedNote{Ready: ready}, func(dir string) error {
		return snapshotter.Snapshot(ctx, dir, false)
	})
	if err != nil {
		return err
	}
	b.tidy()
	return unloaded
}

// fonts makes matplotlib's list of fonts. No name of the session is set.
const fonts = `__import__("sallyport_guest.fonts").fonts.prepare()`

// warm runs code in a fresh sandbox, so that the snapshot has what every first
// execution needs, imports the modules, and makes the list of fonts if there is
// something that draws. The error is ErrPreload if some modules cannot be imported: the
// sandbox can be used without them.
func (b *instance) warm(ctx context.Context, modules []string) error {
	ctx, cancel := context.WithTimeout(ctx, preloadTimeout)
	defer cancel()
	if err := b.preload(ctx, ""); err != nil {
		return err
	}
	var unloaded []error
	for _, m := range modules {
		err := b.preload(ctx, fmt.Sprintf("__import__(%q) and None\n", m))
		if err == nil {
			continue
		}
		err = fmt.Errorf("importing %s: %w", m, err)
		if !errors.Is(err, ErrPreload) {
			return err
		}
		unloaded = append(unloaded, err)
	}
	// Without it, the first figure makes it.
	if err := b.preload(ctx, fonts); err != nil && !errors.Is(err, ErrPreload) {
		return err
	}
	return errors.Join(unloaded...)
}

// preload runs code in a fresh sandbox. The error is ErrPreload if it raised an
// exception.
func (b *instance) preload(ctx context.Context, code string) error {
	tail := &warmOutput{}
	running, err := b.conn.Start(wire.Exec{Code: code, Filename: "<preload>", Reseed: entropy()}, tail)
	if err != nil {
		return err
	}
	select {
	case <-running.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	outcome, err := running.Result()
	if err != nil {
		return err
	}
	if outcome.Status != wire.StatusOK {
		return fmt.Errorf("%w: %s", ErrPreload, strings.TrimSpace(tail.text))
	}
	return nil
}

// warmOutput keeps the end of the output of preloading.
type warmOutput struct{ text string }

func (w *warmOutput) Output(_ wire.Stream, p []byte) {
	const most = 2 << 10
	w.text += string(p)
	w.text = w.text[max(0, len(w.text)-most):]
}

func (w *warmOutput) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no calls while modules are preloaded"}
}

// tidy removes the prepared snapshots that were unused for longest when there are too
// many.
func (b *preparedSnapshot) tidy() {
	list, err := b.store.List()
	if err != nil {
		return
	}
	var bases []snapshot.Entry
	for _, e := range list {
		if strings.HasPrefix(e.Name, hibernate.PreparedPrefix) {
			bases = append(bases, e)
		}
	}
	for len(bases) > keepPrepared {
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

// entropy returns the random bytes that a sandbox is reseeded with.
func entropy() string {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return hex.EncodeToString(seed[:])
}
