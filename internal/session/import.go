package session

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sallyport/internal/wire"
)

// An Archive is an exported session that is read, from its beginning to its
// end.
type Archive struct {
	Facts Facts
	tar   *tar.Reader
	limit int64 // of bytes of files in the workspace
	seen  map[string]bool
}

// An Item is a file or directory of an archive. Content can be read until the
// next one is asked for.
type Item struct {
	Name      string // relative, clean and of characters that can be shown
	Mode      uint32
	Size      int64
	Directory bool
	Content   io.Reader
}

// ReadArchive begins to read an archive, which may come from anywhere. Limit
// bounds the bytes of its files.
func ReadArchive(r io.Reader, limit int64) (*Archive, error) {
	a := &Archive{tar: tar.NewReader(r), limit: limit, seen: map[string]bool{}}
	first, err := a.Next()
	if err != nil || first == nil || first.Name != ArchiveFacts {
		return nil, errors.Join(ErrArchive, err)
	}
	data, err := io.ReadAll(io.LimitReader(first.Content, maxRecord))
	if err == nil {
		err = json.Unmarshal(data, &a.Facts)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrArchive, ArchiveFacts, err)
	}
	if a.Facts.Format != archiveFormat {
		return nil, fmt.Errorf("%w of this version: it has format %d", ErrArchive, a.Facts.Format)
	}
	return a, nil
}

// Next returns the next file or directory; nil at the end.
func (a *Archive) Next() (*Item, error) {
	h, err := a.tar.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	name := strings.TrimSuffix(h.Name, "/")
	switch {
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return nil, fmt.Errorf("%w: %q is neither a file nor a directory", ErrArchive, h.Name)
	case !validPath(name) || a.seen[name]:
		return nil, fmt.Errorf("%w: a file called %q", ErrArchive, h.Name)
	case len(a.seen) >= 2*maxFiles:
		return nil, fmt.Errorf("%w: more than %d files", ErrArchive, 2*maxFiles)
	}
	a.seen[name] = true
	i := &Item{Name: name, Mode: uint32(h.Mode) & 0o777, Directory: h.Typeflag == tar.TypeDir, Content: a.tar}
	if !i.Directory {
		i.Size = h.Size
		if strings.HasPrefix(name, ArchiveWorkspace) {
			a.limit -= h.Size
		}
		if a.limit < 0 {
			return nil, errors.New("the archive's files are larger than a workspace may be (limits.workspace)")
		}
	}
	return i, nil
}

// Import makes a new session whose workspace has the files of an archive. No
// code is run.
func (s *Set) Import(ctx context.Context, name string, a *Archive) error {
	if name == s.own {
		return fmt.Errorf("%q is the name of every process's own session; choose another", name)
	}
	one, err := s.Get(name)
	if err != nil {
		return err
	}
	return one.fill(ctx, a)
}

// fill puts files into a session that has no state yet.
func (s *Session) fill(ctx context.Context, a *Archive) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if s.box != nil {
		return s.taken()
	}
	if s.nap != nil {
		if r, err := s.nap.keeper.read(s.name); err != nil || r != nil {
			return errors.Join(s.taken(), err)
		}
		if _, err := s.nap.claim(); err != nil {
			return err
		}
		if s.nap.asleep { // it came this moment
			s.nap.leave("")
			return s.taken()
		}
	}
	b, err := s.begin(ctx)
	s.awake.Store(err == nil)
	if err != nil {
		return err
	}
	s.box = b
	s.opened(b)
	f := &feeder{archive: a}
	if err = b.ask(ctx, s.config.Grace, taskTime(s.config.Spec.Limits.WorkspaceBytes), wire.TaskPutIn, f.give); err != nil {
		s.box.destroy()
		s.box = nil
		s.awake.Store(false)
		s.view.closed("", "")
		return errors.Join(fmt.Errorf("putting the files in: %w", err), s.nap.forget())
	}
	b.idle(s.config.Background)
	return nil
}

func (s *Session) taken() error {
	return fmt.Errorf("there is a session %s already; give another name, or remove it", s.name)
}

// feeder gives a guest the files of an archive, part by part.
type feeder struct {
	archive *Archive
	item    *Item // in the middle of it
	rest    int64
}

func (f *feeder) give(call wire.Call) (any, error) {
	if call.Method != wire.MethodTaskNext {
		return nil, fmt.Errorf("the sandbox asked for %s", clean(call.Method))
	}
	for f.item == nil {
		next, err := f.archive.Next()
		if err != nil {
			return nil, err
		}
		if next == nil {
			return nil, nil
		}
		name, ok := strings.CutPrefix(next.Name, ArchiveWorkspace)
		if !ok {
			continue
		}
		next.Name = name
		if next.Directory {
			return wire.TaskFile{Path: name, Mode: next.Mode | 0o700, Directory: true}, nil
		}
		f.item, f.rest = next, next.Size
	}
	part := wire.TaskFile{Path: f.item.Name, Mode: f.item.Mode, Data: make([]byte, min(f.rest, partSize))}
	if _, err := io.ReadFull(f.item.Content, part.Data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if f.rest -= int64(len(part.Data)); f.rest > 0 {
		part.More = true
	} else {
		f.item = nil
	}
	return part, nil
}
