package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// pullTime bounds the pull of one image.
const pullTime = 30 * time.Minute

// pull is one image being pulled, for everything that waits for it.
type pull struct {
	began time.Time
	got   atomic.Int64 // bytes of an image of the store
	done  chan struct{}
	err   error
}

// reference returns the image of a spec.
func (b *Engine) reference(spec *sandbox.Spec) string {
	if spec != nil && spec.Root.Image != "" {
		return b.stored(spec.Root.Image)
	}
	return b.stored(b.opts.Image)
}

// pullable reports whether a registry may have the image.
func pullable(reference string) bool {
	_, given := handed(reference)
	return !given && !wholeID().MatchString(reference)
}

// fetch pulls a missing image, if that is allowed. The pull goes on when ctx is
// done, so that a later call finds it further along.
func (b *Engine) fetch(ctx context.Context, reference string) error {
	_, given := handed(reference)
	switch {
	case given:
	case !pullable(reference):
		return fmt.Errorf("%w: neither %s nor Sallyport has %s (`sallyport env list` shows what is built)", errNoImage, b.opts.Engine, reference)
	case b.opts.Pull == PullNever:
		return fmt.Errorf("%w: %s, and images.pull is never. To get it: %s pull %s", errNoImage, reference, b.opts.Engine, reference)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return supervise.ErrClosed
	}
	p := b.pulls[reference]
	if p == nil {
		p = &pull{began: time.Now(), done: make(chan struct{})}
		b.pulls[reference] = p
		b.log.Info("getting the image", "engine", b.opts.Engine, "image", reference)
		b.all.Go(func() { b.pull(reference, p) })
	}
	b.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		if given {
			return fmt.Errorf("%s is still being given the image %s, %d MB so far: try again in a while (%w)", b.opts.Engine, reference, p.got.Load()>>20, ctx.Err())
		}
		return fmt.Errorf("%s is still pulling the image %s, for %v so far; try again in a while (`%[1]s pull %[2]s` shows the progress): %[4]w",
			b.opts.Engine, reference, time.Since(p.began).Round(time.Second), ctx.Err())
	}
}

// wasPulled reports whether this program has pulled the image.
func (b *Engine) wasPulled(reference string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pulled[reference]
}

func (b *Engine) pull(reference string, p *pull) {
	ctx, cancel := context.WithTimeout(b.life, pullTime)
	defer cancel()
	var err error
	if id, ok := handed(reference); ok {
		err = b.handOver(ctx, id, reference, p.got.Store)
	} else {
		_, err = b.cli.output(ctx, "pull", "--quiet", reference)
	}
	b.mu.Lock()
	delete(b.pulls, reference)
	b.pulled[reference] = err == nil
	b.mu.Unlock()
	if err != nil {
		kind := errNoImage
		if f := asFailure(err); f == errDiskFull || f == errNotRunning {
			kind = f
		}
		err = fmt.Errorf("%w: %s: %w", kind, reference, err)
	}
	b.log.Info("got the image", "image", reference, "took", time.Since(p.began).Round(time.Millisecond), "error", err)
	p.err = err
	close(p.done)
}

// ready returns the image of a spec, pulled and inspected, and the engine's facts.
func (b *Engine) ready(ctx context.Context, spec *sandbox.Spec) (*facts, *image, error) {
	reference := b.reference(spec)
	if b.opts.Pull == PullAlways && pullable(reference) && !b.wasPulled(reference) {
		if err := b.fetch(ctx, reference); err != nil {
			return nil, nil, err
		}
		b.unlearn(reference)
	}
	for fetched := false; ; fetched = true {
		f, img, err := b.examine(ctx, reference)
		if err == nil || !errors.Is(err, errNoImage) || fetched {
			return f, img, err
		}
		if err := b.fetch(ctx, reference); err != nil {
			return f, nil, err
		}
	}
}

// examine is ready for an image that is present. Its findings are kept until a
// start fails.
func (b *Engine) examine(ctx context.Context, reference string) (*facts, *image, error) {
	b.probing.Lock()
	defer b.probing.Unlock()
	if img := b.images[reference]; b.facts != nil && img != nil && img.inspection != nil {
		return b.facts, img, nil
	}
	img, err := b.cli.inspectImage(ctx, reference)
	if err == nil {
		if k := b.recall(reference, img.ID); k != nil && (b.facts == nil || b.facts.Target == k.Facts.Target) {
			b.facts, b.images[reference] = k.Facts, k.Image
			return k.Facts, k.Image, nil
		}
	} else if !errors.Is(err, errNoImage) {
		return nil, nil, err
	}
	f, factsErr := b.known(ctx)
	if factsErr != nil {
		return nil, nil, factsErr
	}
	if err != nil {
		return f, nil, err
	}
	if img.Interpreter, err = b.interpreterOf(reference); err != nil {
		return f, nil, err
	}
	if img.inspection, err = b.inspect(ctx, f, img); err != nil {
		return f, img, err
	}
	b.images[reference] = img
	b.keep(reference, f, img)
	return f, img, nil
}

// known returns the engine's facts, which are asked for once. Callers hold
// probing.
func (b *Engine) known(ctx context.Context) (*facts, error) {
	if b.facts == nil {
		f, err := b.cli.engineFacts(ctx)
		if err != nil {
			return nil, err
		}
		if f.Podman && f.Remote && b.opts.Runtime != "" && filepath.Base(b.opts.Runtime) != filepath.Base(f.Runtime) {
			return nil, fmt.Errorf("%w: %s, not %s", errElsewhere, f.Runtime, b.opts.Runtime)
		}
		b.facts = f
	}
	return b.facts, nil
}
