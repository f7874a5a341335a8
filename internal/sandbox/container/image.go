package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"sallyport/internal/sandbox"
)

// pullTime bounds the fetching of one image.
const pullTime = 30 * time.Minute

// pull is the fetching of one image, for all who wait for it.
type pull struct {
	began time.Time
	done  chan struct{}
	err   error
}

// reference is the image of a spec.
func (b *Backend) reference(spec *sandbox.Spec) string {
	if spec != nil && spec.Root.Image != "" {
		return spec.Root.Image
	}
	return b.opts.Image
}

// fetch gets an image that is not here, if that is allowed. It goes on when
// ctx is done, so that the next call finds it further.
func (b *Backend) fetch(ctx context.Context, reference string) error {
	if b.opts.Pull == PullNever {
		return fmt.Errorf("%w: %s, and images.pull is never. To get it: %s pull %s", errNoImage, reference, b.opts.Engine, reference)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errClosed
	}
	p := b.pulls[reference]
	if p == nil {
		p = &pull{began: time.Now(), done: make(chan struct{})}
		b.pulls[reference] = p
		b.log.Info("fetching the image", "engine", b.opts.Engine, "image", reference)
		b.all.Go(func() { b.pull(reference, p) })
	}
	b.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s is still fetching the image %s, for %v so far; try again in a while (or see how it goes with: %[1]s pull %[2]s): %[4]w",
			b.opts.Engine, reference, time.Since(p.began).Round(time.Second), ctx.Err())
	}
}

// wasPulled says whether this program has fetched the image.
func (b *Backend) wasPulled(reference string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pulled[reference]
}

func (b *Backend) pull(reference string, p *pull) {
	ctx, cancel := context.WithTimeout(b.life, pullTime)
	defer cancel()
	_, err := b.cli.output(ctx, "pull", "--quiet", reference)
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
	b.log.Info("fetched the image", "image", reference, "took", time.Since(p.began).Round(time.Millisecond), "error", err)
	p.err = err
	close(p.done)
}

var errClosed = errors.New("the engine is closed")

// ready is the image of a spec, fetched and tried out, and the engine's facts.
func (b *Backend) ready(ctx context.Context, spec *sandbox.Spec) (*facts, *image, error) {
	reference := b.reference(spec)
	if b.opts.Pull == PullAlways && !b.wasPulled(reference) {
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

// examine is ready for an image that is here. What was found out stays: a
// start that then fails has it found out anew.
func (b *Backend) examine(ctx context.Context, reference string) (*facts, *image, error) {
	b.probing.Lock()
	defer b.probing.Unlock()
	if img := b.images[reference]; b.facts != nil && img != nil && img.trial != nil {
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
	if img.trial, err = b.tryOut(ctx, f, img); err != nil {
		return f, img, err
	}
	b.images[reference] = img
	b.keep(reference, f, img)
	return f, img, nil
}

// known are the engine's facts, asked for once. Callers hold probing.
func (b *Backend) known(ctx context.Context) (*facts, error) {
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
