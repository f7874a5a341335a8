package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/archive"
	"github.com/sallyport/sallyport/internal/wire"
)

// errNoEngine: this program has no engine for this system.
var errNoEngine = errors.New("no sandbox engine is built into this program for this system; install Podman or Docker")

// Sessions lists the local user's sessions that this process has.
func (b *Broker) Sessions() []session.Info {
	if b.sessions == nil {
		return nil
	}
	list := b.sessions.List("")
	b.name(list)
	return list
}

// Suspend suspends a session that is running here to disk.
func (b *Broker) Suspend(ctx context.Context, key session.Key) error {
	return b.with(func(s *session.Set) error { return s.Suspend(ctx, key) })
}

// Resume resumes a suspended session.
func (b *Broker) Resume(ctx context.Context, key session.Key) error {
	return b.with(func(*session.Set) error {
		one, err := b.open(ctx, key)
		if err != nil {
			return err
		}
		return one.Resume(ctx)
	})
}

// Reset forgets a session's state. It waits until the code that runs in it has
// ended.
func (b *Broker) Reset(ctx context.Context, key session.Key) error {
	return b.with(func(s *session.Set) error { return s.Reset(ctx, key) })
}

// Remove forgets a session's state and its log.
func (b *Broker) Remove(ctx context.Context, key session.Key) error {
	return b.with(func(s *session.Set) error { return s.Remove(ctx, key) })
}

// Export writes a session's files and the source of what was run.
func (b *Broker) Export(ctx context.Context, key session.Key, w io.Writer) error {
	return b.with(func(*session.Set) error {
		one, err := b.open(ctx, key)
		if err != nil {
			return err
		}
		return one.Export(ctx, w)
	})
}

// Put puts files into a session's workspace.
func (b *Broker) Put(ctx context.Context, key session.Key, next func() (*wire.TaskFile, error)) error {
	return b.with(func(*session.Set) error {
		one, err := b.open(ctx, key)
		if err != nil {
			return err
		}
		return one.Put(ctx, next)
	})
}

// Take gives files of a session's workspace.
func (b *Broker) Take(ctx context.Context, key session.Key, paths []string, give func(wire.TaskFile) error) error {
	return b.with(func(*session.Set) error {
		one, err := b.open(ctx, key)
		if err != nil {
			return err
		}
		return one.Take(ctx, paths, give)
	})
}

// Import makes a session with the files of an archive.
func (b *Broker) Import(ctx context.Context, key session.Key, r io.Reader) error {
	return b.with(func(s *session.Set) error {
		a, err := archive.NewReader(r, b.config.limits().WorkspaceBytes)
		if err != nil {
			return err
		}
		host, err := b.WithFolders(b.config.Template)
		if err != nil {
			return err
		}
		if err := b.start(ctx, key, host.Engine, host.Mounts); err != nil {
			return err
		}
		t, err := b.ready(ctx, b.defaultEnvironment(), nil)
		if err != nil {
			return err
		}
		return s.Import(ctx, key, a, t.WithMounts(host.Mounts))
	})
}

// open finds a session that may be on disk, whose engine may run here.
func (b *Broker) open(ctx context.Context, key session.Key) (*session.Session, error) {
	made, _ := b.sessions.Made(key)
	templates := []*session.Template{b.config.Template}
	for _, name := range slices.Sorted(maps.Keys(b.config.Templates)) {
		templates = append(templates, b.config.Templates[name])
	}
	if all := b.config.Environments; all != nil {
		names := all.Names()
		if made.Environment != "" {
			names = append(slices.Clone(names), made.Environment) // which may be an ID
		}
		for _, name := range names {
			if t, err := all.Template(name); err == nil {
				templates = append(templates, t)
			}
		}
	}
	if made.Suspended {
		for i, t := range templates {
			templates[i] = t.WithMounts(made.Folders)
		}
		for _, m := range made.Folders {
			if err := b.config.Folders.Again(m); err != nil {
				return nil, fmt.Errorf("it was suspended with the folder %s: %w", m.Target, err)
			}
		}
	}
	one, err := b.sessions.Open(key, templates...)
	if err != nil {
		return nil, err
	}
	return one, b.start(ctx, key, one.Engine(), one.Mounts())
}

// start asks the gate whether a sandbox of the session may start for its owner.
func (b *Broker) start(ctx context.Context, key session.Key, engine sandbox.Engine, folders []sandbox.Mount) error {
	_, err := b.admit(ctx, authz.Principal{Owner: cmp.Or(key.Owner, authz.LocalOwner), Session: key.Name}, engine, folders)
	return err
}

func (b *Broker) with(do func(*session.Set) error) error {
	if b.sessions == nil {
		return errNoEngine
	}
	return do(b.sessions)
}
