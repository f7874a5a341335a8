//go:build unix

package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// handedID is the ID of an image in a store.
var handedID = "sha256:" + strings.Repeat("5", 64)

// testImages is a store with one image.
type testImages struct {
	gone    atomic.Bool
	trouble error // of an export, in its middle
}

func (i *testImages) Interpreter(id string) (string, bool, error) {
	return "/opt/python/bin/python3", id == handedID && !i.gone.Load(), nil
}

func (i *testImages) Export(_ context.Context, id, name string, to io.Writer) error {
	fmt.Fprintf(to, "%s as %s: ", id, name)
	if i.trouble != nil {
		return i.trouble
	}
	_, err := io.WriteString(to, "whole")
	return err
}

// handing returns an engine without images, and a spec that names one of a store.
func (f *fake) handing(t *testing.T, images Images) (*Engine, *sandbox.Spec) {
	t.Helper()
	f.opts.Images, f.opts.Pull = images, PullNever
	b := f.backend(t)
	facts, err := parseInfo(recorded(t, "podman-root-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	b.keep(b.stored(handedID), facts, &image{ID: "sha256:f00", Interpreter: "/opt/python/bin/python3", inspection: &inspection{inside: good()}})
	spec := f.spec(t, "a")
	spec.Root.Image = handedID
	return b, spec
}

func (f *fake) count(t *testing.T, command string) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(f.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count("\n"+string(log), "\n"+command)
}

// TestHandOver: programs that want the same image of the store at once give it to
// the engine once, also where nothing may be pulled; its interpreter is the image's.
func TestHandOver(t *testing.T) {
	f := newFake(t)
	f.drop(t, "image")
	images := &testImages{}
	var all sync.WaitGroup
	for range 2 {
		b, spec := f.handing(t, images)
		for range 2 {
			all.Go(func() {
				facts, img, err := b.ready(t.Context(), spec)
				if err != nil {
					t.Error(err)
					return
				}
				args := b.containerSpec(facts, img, "i", "r", spec.Program, sandbox.Limits{Processes: 64}).args()
				if got, want := strings.Join(args, " "), "--entrypoint /opt/python/bin/python3 sha256:f00 "; !strings.Contains(got, want) {
					t.Errorf("got %q, want %q in it", got, want)
				}
			})
		}
	}
	all.Wait()
	if got := f.count(t, "load"); got != 1 {
		t.Errorf("the engine was given the image %d times, want 1", got)
	}
}

// TestHandOverFails: half an archive is not an image, the error is the store's, and the
// next try works. An ID that nothing has is not looked for in a registry.
func TestHandOverFails(t *testing.T) {
	f := newFake(t)
	f.drop(t, "image")
	images := &testImages{trouble: errors.New("the disk gave out")}
	b, spec := f.handing(t, images)
	if _, _, err := b.ready(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "the disk gave out") {
		t.Errorf("got %v, want the disk's error", err)
	}
	images.trouble = nil
	if _, _, err := b.ready(t.Context(), spec); err != nil {
		t.Error(err)
	}
	f.drop(t, "image")
	spec.Root.Image = "sha256:" + strings.Repeat("6", 64)
	_, err := b.Start(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "neither podman nor Sallyport has sha256:666") || f.count(t, "pull") != 0 {
		t.Errorf("got %v and %d pulls, want neither the image nor a pull", err, f.count(t, "pull"))
	}
}

// TestDropImages: what the store does not have any more leaves the engine, and
// nothing else does.
func TestDropImages(t *testing.T) {
	f := newFake(t)
	f.drop(t, "image")
	images := &testImages{}
	b, spec := f.handing(t, images)
	facts, _, err := b.ready(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, target string
		gone         bool
		left         int
	}{
		{"the store has it", facts.Target, false, 1},
		{"another engine", "elsewhere", true, 1},
		{"gone", facts.Target, true, 0},
	} {
		images.gone.Store(tt.gone)
		if err := b.dropImages(t.Context(), tt.target); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		_, there := os.Stat(filepath.Join(f.dir, "image"))
		notes, err := b.handedNotes().List()
		if err != nil || len(notes) != tt.left || (there == nil) != (tt.left > 0) {
			t.Errorf("%s: got %v notes, image %v, %v; want %d", tt.name, notes, there, err, tt.left)
		}
	}
}
