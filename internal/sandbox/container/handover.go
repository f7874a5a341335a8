package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/store"
)

// Images is a store of images that no engine has yet.
type Images interface {
	// Interpreter returns the path of the Python in the image with that ID. found
	// is false if the store does not have the image.
	Interpreter(id string) (path string, found bool, err error)
	// Export writes the image under that name, as `podman load` and `docker load`
	// read it.
	Export(ctx context.Context, id, name string, to io.Writer) error
}

// handedName begins the names of images that engines get from the store. The rest
// is the image's ID there: an engine computes another one.
const handedName = "localhost/sallyport/env:"

var (
	wholeID   = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)
	handedTag = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// handed returns the ID in the store of an image with that name in the engine.
func handed(reference string) (id string, ok bool) {
	tag, ok := strings.CutPrefix(reference, handedName)
	if !ok || !handedTag().MatchString(tag) {
		return "", false
	}
	return "sha256:" + tag, true
}

// stored returns the name that the engine has for an image of the store. It
// returns other references, also the engine's own IDs, as they are.
func (b *Engine) stored(reference string) string {
	if b.opts.Images == nil || !wholeID().MatchString(reference) {
		return reference
	}
	if _, found, err := b.opts.Images.Interpreter(reference); err == nil && !found {
		return reference
	}
	return handedName + strings.TrimPrefix(reference, "sha256:")
}

// interpreterOf returns the interpreter in an image.
func (b *Engine) interpreterOf(reference string) (string, error) {
	id, ok := handed(reference)
	if !ok || b.opts.Images == nil {
		return b.opts.Interpreter, nil
	}
	path, found, err := b.opts.Images.Interpreter(id)
	if err == nil && !found {
		err = fmt.Errorf("%w: %s was removed from the store", errNoImage, id)
	}
	return path, err
}

// handedNotes are empty files that say what programs of this user gave to engines:
// an image's ID, and which engine.
func (b *Engine) handedNotes() store.Dir { return b.opts.State.Sub("images") }

// handedSuffix ends the names of the notes about an engine.
func handedSuffix(target string) string { return "-" + digest([]byte(target))[:16] }

// handOver gives the engine an image of the store. Others that want the same one
// meanwhile wait.
func (b *Engine) handOver(ctx context.Context, id, reference string, tell func(written int64)) error {
	b.probing.Lock()
	f, err := b.known(ctx)
	b.probing.Unlock()
	if err != nil {
		return err
	}
	notes, name := b.handedNotes(), strings.TrimPrefix(id, "sha256:")+handedSuffix(f.Target)
	unlock, err := waitLock(ctx, notes, name)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := b.cli.inspectImage(ctx, reference); !errors.Is(err, errNoImage) {
		return err
	}
	if err := notes.Write(name, nil); err != nil { // first: a crash leaves no image without one
		return err
	}
	r, w := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := b.opts.Images.Export(ctx, id, reference, &counting{to: w, tell: tell})
		w.CloseWithError(err)
		exported <- err
	}()
	_, err = b.cli.feed(ctx, r, "load", "--quiet")
	r.Close()
	if failed := <-exported; failed != nil && !errors.Is(failed, io.ErrClosedPipe) { // else the engine reads no more
		err = errors.Join(failed, err)
	}
	return err
}

// waitLock takes a lock for long work.
func waitLock(ctx context.Context, dir store.Dir, name string) (unlock func(), err error) {
	for {
		unlock, ok, err := dir.TryLock(name)
		if err != nil || ok {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// counting tells how much was written.
type counting struct {
	to   io.Writer
	n    int64
	tell func(int64)
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	c.tell(c.n)
	return n, err
}

// maxDropped bounds the images that one program takes away from an engine.
const maxDropped = 16

// dropImages removes from the engine what it got from the store and the store does
// not have any more. An image that a container uses stays for the next time.
func (b *Engine) dropImages(ctx context.Context, target string) error {
	if b.opts.Images == nil {
		return nil
	}
	notes := b.handedNotes()
	names, err := notes.List()
	if err != nil {
		return err
	}
	dropped := 0
	var errs []error
	for _, name := range names {
		tag, ok := strings.CutSuffix(name, handedSuffix(target))
		if !ok || !handedTag().MatchString(tag) || dropped == maxDropped {
			continue
		}
		if _, found, err := b.opts.Images.Interpreter("sha256:" + tag); found || err != nil {
			continue
		}
		unlock, free, err := notes.TryLock(name)
		if err != nil || !free {
			continue // being handed over, or dropped by another program
		}
		dropped++
		if _, err = b.cli.output(ctx, "image", "rm", handedName+tag); err == nil || asFailure(err) == errNoImage {
			if err = notes.Remove(name); errors.Is(err, fs.ErrNotExist) {
				err = nil // another was first
			}
			b.log.Info("removed an image that is no longer in the store", "engine", b.opts.Engine, "image", "sha256:"+tag)
		}
		unlock()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
