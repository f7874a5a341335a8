package broker

import (
	"context"
	"errors"
	"io"

	"sallyport/internal/session"
)

// errNoEngine: this program has no engine for this system.
var errNoEngine = errors.New("no sandbox engine is built into this program for this system; install Podman or Docker")

// Sessions lists the sessions that this process has.
func (b *Broker) Sessions() []session.Info {
	if b.sessions == nil {
		return nil
	}
	return b.sessions.List()
}

// Hibernate lays a session that is awake here to sleep on disk. For this and
// the following methods an empty name is the process's own session.
func (b *Broker) Hibernate(ctx context.Context, name string) error {
	return b.with(func(s *session.Set) error { return s.Sleep(ctx, name) })
}

// Wake wakes a session that sleeps.
func (b *Broker) Wake(ctx context.Context, name string) error {
	return b.with(func(s *session.Set) error {
		if err := b.clear(ctx); err != nil {
			return err
		}
		return s.Wake(ctx, name)
	})
}

// Reset forgets a session's state. It waits until the code that runs in it has
// ended.
func (b *Broker) Reset(ctx context.Context, name string) error {
	return b.with(func(s *session.Set) error { return s.Reset(ctx, name) })
}

// Remove forgets a session's state and its log.
func (b *Broker) Remove(ctx context.Context, name string) error {
	return b.with(func(s *session.Set) error { return s.Remove(ctx, name) })
}

// Export writes a session's files and the source of what was run.
func (b *Broker) Export(ctx context.Context, name string, w io.Writer) error {
	return b.with(func(s *session.Set) error {
		if err := b.clear(ctx); err != nil {
			return err
		}
		return s.Export(ctx, name, w)
	})
}

// Import makes a session with the files of an archive.
func (b *Broker) Import(ctx context.Context, name string, r io.Reader) error {
	return b.with(func(s *session.Set) error {
		a, err := session.ReadArchive(r, b.config.Spec.Limits.WithDefaults().WorkspaceBytes)
		if err != nil {
			return err
		}
		if err := b.clear(ctx); err != nil {
			return err
		}
		return s.Import(ctx, name, a)
	})
}

func (b *Broker) with(do func(*session.Set) error) error {
	if b.sessions == nil {
		return errNoEngine
	}
	return do(b.sessions)
}
