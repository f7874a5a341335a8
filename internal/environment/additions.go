package environment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// maxAdded bounds the packages of one addition.
	maxAdded    = 500
	maxArchives = 4 << 30
	// partSize is how much of an archive one answer has.
	partSize = 1 << 20
	// addTime bounds how long one addition may take, without the time that a person
	// thinks.
	addTime = 10 * time.Minute
	// maxAtOnce bounds the additions that are worked on, of all sessions.
	maxAtOnce = 2
)

// AdditionsConfig is what Additions need.
type AdditionsConfig struct {
	State store.Dir // of the archives
	// Scratch creates a temporary folder on the disk of State.
	Scratch func() (dir string, remove func(), err error)
	Pip     func(context.Context) (build.Pip, error)
	// Allowed returns names with versions that the user restricts.
	Allowed func() []string
	// MaxBytes bounds an archive, and MaxTotal all of them: 4 GiB if it is 0. The newest
	// stays in any case.
	MaxBytes, MaxTotal int64
}

// Additions are packages for sandboxes that run. Each set of wheels is kept as an
// archive, and what a request was answered with, so that both are there again without
// a network. Methods are safe for concurrent use. An error is a [*wire.CallError] where
// code may know it.
type Additions struct {
	config AdditionsConfig
	turns  chan struct{}

	checking sync.Mutex
	intact   map[string]bool // archives that this process has found so
}

// NewAdditions returns Additions.
func NewAdditions(c AdditionsConfig) *Additions {
	c.MaxTotal = cmp.Or(c.MaxTotal, maxArchives)
	return &Additions{config: c, turns: make(chan struct{}, maxAtOnce), intact: map[string]bool{}}
}

var (
	archiveName = lazyregexp.New(`^[0-9a-f]{64}$`)
	pythonPath  = lazyregexp.New(`^/[A-Za-z0-9/._+-]{1,200}$`)
)

// Resolve chooses the packages that are needed and that the sandbox lacks. fetch
// downloads exactly these, and returns the name and the size of their archive.
func (s *Additions) Resolve(ctx context.Context, asked *wire.InstallPackages, tell func(stage string)) (found []wire.Package, fetch func(context.Context) (archive string, bytes int64, err error), err error) {
	a := build.Addition{Present: map[string]string{}, Allowed: s.config.Allowed()}
	for _, text := range asked.Packages {
		r, err := build.ParseRequirement(text)
		if err == nil && strings.Contains(text, "--hash") {
			err = fmt.Errorf("%q has a hash: leave it out", text)
		}
		if err != nil {
			return nil, nil, &wire.CallError{Kind: wire.KindInvalid, Message: err.Error()}
		}
		a.Requirements = append(a.Requirements, r)
	}
	if a.Target, err = build.ParseTarget(asked.Target); err == nil {
		err = a.Target.Supported()
	}
	if err != nil {
		return nil, nil, &wire.CallError{Kind: wire.KindInvalid, Message: err.Error()}
	}
	for name, version := range asked.Installed {
		a.Present[build.Normalized(name)] = version
	}
	python := "/usr/bin/env python3"
	if pythonPath().MatchString(asked.Interpreter) {
		python = asked.Interpreter
	}
	request, err := digestOf("request 1", a)
	if err != nil {
		return nil, nil, err
	}
	wheels, recent := s.before(request)
	if !recent {
		err = s.work(ctx, "resolving", tell, func(ctx context.Context, pip build.Pip, dir string) error {
			now, err := pip.Add(ctx, &a, dir)
			var failed *build.PipError
			if errors.As(err, &failed) && failed.Unreachable() && wheels != nil {
				return nil
			}
			if why := a.Conflicts(err); why != "" {
				return &wire.CallError{Kind: wire.KindInvalid, Message: "the requirements conflict with what is there, or with the policy" + why}
			}
			if err != nil {
				return err
			}
			wheels = now
			return s.note(request, wheels)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if len(wheels) > maxAdded {
		return nil, nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("these are %d packages with those that they need, and %d may be added at once: ask for fewer, or use an environment", len(wheels), maxAdded)}
	}
	for _, w := range wheels {
		found = append(found, wire.Package{Name: w.Package, Version: w.Version})
	}
	return found, func(ctx context.Context) (string, int64, error) { return s.fetch(ctx, a.Target, wheels, python, tell) }, nil
}

// fetch downloads wheels and archives them, unless that was done before.
func (s *Additions) fetch(ctx context.Context, target *build.Target, wheels []build.Wheel, python string, tell func(string)) (archive string, bytes int64, err error) {
	pins, err := build.Pins(wheels)
	if err != nil {
		return "", 0, err
	}
	slices.Sort(pins)
	if archive, err = digestOf("archive 1", python, pins); err != nil {
		return "", 0, err
	}
	if f, err := s.open(archive); err == nil {
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return "", 0, err
		}
		return archive, info.Size(), nil
	}
	err = s.work(ctx, "downloading", tell, func(ctx context.Context, pip build.Pip, dir string) error {
		wheels, made := filepath.Join(dir, "wheels"), filepath.Join(dir, "archive")
		if err := os.Mkdir(wheels, 0o700); err != nil {
			return err
		}
		pip.Locked = true
		if err := pip.Download(ctx, target, pins, wheels); err != nil {
			return err
		}
		tell("unpacking wheels")
		if bytes, err = s.pack(ctx, wheels, made, python); err != nil {
			return err
		}
		return s.keep(made, archive)
	})
	return archive, bytes, err
}

// pack writes the archive of some wheels, with its hash behind the end of the tar.
func (s *Additions) pack(ctx context.Context, wheels, to, python string) (int64, error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	w := &build.Bounded{W: io.MultiWriter(f, sum), Limit: s.config.MaxBytes}
	err = build.Archive(ctx, w, wheels, python)
	if err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	if err == nil {
		err = f.Sync()
	}
	return w.N, errors.Join(err, f.Close())
}

// work runs f with pip and a temporary folder, once it is its turn.
func (s *Additions) work(ctx context.Context, stage string, tell func(string), f func(ctx context.Context, pip build.Pip, dir string) error) error {
	tell("waiting for other installations")
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, addTime, errTooSlow)
	defer cancel()
	tell(stage)
	pip, err := s.config.Pip(ctx)
	if err != nil {
		return &wire.CallError{Kind: wire.KindUnavailable, Message: err.Error()}
	}
	dir, remove, err := s.config.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	pip.MaxBytes = s.config.MaxBytes
	return forCode(f(ctx, pip.Telling(tell), dir))
}

var errTooSlow = errors.New("it took more than 10 minutes")

// forCode returns the error in words that code may know, if there are such.
func forCode(err error) error {
	var pip *build.PipError
	var size *build.OversizeError
	var wheel *build.WheelError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &size):
		return &wire.CallError{Kind: wire.KindLimit, Message: size.Error() + ": ask for fewer, or use an environment"}
	case errors.As(err, &pip): // the rest is for the user
		return fmt.Errorf("%w\n%w", &wire.CallError{Kind: wire.KindUnavailable, Message: pip.Brief()}, err)
	case errors.Is(err, errTooSlow):
		return &wire.CallError{Kind: wire.KindTimeout, Message: errTooSlow.Error() + ": try again, or use an environment"}
	case errors.Is(err, syscall.ENOSPC):
		return &wire.CallError{Kind: wire.KindUnavailable, Message: "the host's disk is full: the user has to free some space"}
	case errors.As(err, &wheel) && !errors.As(err, new(*fs.PathError)):
		return &wire.CallError{Kind: wire.KindUnavailable, Message: wheel.Error() + "; nothing was installed"}
	}
	return err
}
