package archive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sallyport/sallyport/internal/wire"
)

// Reader reads an archive from beginning to end. The archive may come from
// anywhere.
type Reader struct {
	Facts Facts
	tar   *tar.Reader
	limit int64 // of bytes of files in the workspace
	seen  map[string]bool

	// For NextPart: the current file, and how much of it is left.
	current *Item
	left    int64
}

// An Item is a file or directory of an archive. Content is valid until the next
// one is read.
type Item struct {
	Name      string // relative, clean and of printable characters
	Mode      uint32
	Size      int64
	Directory bool
	Content   io.Reader
}

// NewReader begins to read an archive with at most limit bytes of files.
func NewReader(r io.Reader, limit int64) (*Reader, error) {
	a := &Reader{tar: tar.NewReader(r), limit: limit, seen: map[string]bool{}}
	first, err := a.Next()
	if err != nil || first == nil || first.Name != FactsFile {
		return nil, errors.Join(ErrInvalid, err)
	}
	data, err := io.ReadAll(io.LimitReader(first.Content, maxFacts))
	if err == nil {
		err = json.Unmarshal(data, &a.Facts)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, FactsFile, err)
	}
	if a.Facts.Format != format {
		return nil, fmt.Errorf("%w that this version can read: it has format %d, not %d", ErrInvalid, a.Facts.Format, format)
	}
	return a, nil
}

// Next returns the next file or directory; nil at the end.
func (a *Reader) Next() (*Item, error) {
	h, err := a.tar.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	name := strings.TrimSuffix(h.Name, "/")
	switch {
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return nil, fmt.Errorf("%w: %q is neither a file nor a directory", ErrInvalid, h.Name)
	case !validPath(name):
		return nil, fmt.Errorf("%w: %q is not a valid file name", ErrInvalid, h.Name)
	case a.seen[name]:
		return nil, fmt.Errorf("%w: it contains %q twice", ErrInvalid, h.Name)
	case len(a.seen) >= 2*maxFiles:
		return nil, fmt.Errorf("%w: more than %d files", ErrInvalid, 2*maxFiles)
	}
	a.seen[name] = true
	i := &Item{Name: name, Mode: uint32(h.Mode) & 0o777, Directory: h.Typeflag == tar.TypeDir, Content: a.tar}
	if !i.Directory {
		i.Size = h.Size
		if strings.HasPrefix(name, Workspace) {
			a.limit -= h.Size
		}
		if a.limit < 0 {
			return nil, errors.New("the archive's files are larger than a workspace may be (limits.workspace)")
		}
	}
	return i, nil
}

// NextPart returns the next part of the workspace's files, in the form that a
// guest takes; nil at the end.
func (a *Reader) NextPart() (*wire.TaskFile, error) {
	for a.current == nil {
		next, err := a.Next()
		if err != nil || next == nil {
			return nil, err
		}
		name, ok := strings.CutPrefix(next.Name, Workspace)
		if !ok {
			continue
		}
		next.Name = name
		if next.Directory {
			return &wire.TaskFile{Path: name, Mode: next.Mode | 0o700, Directory: true}, nil
		}
		a.current, a.left = next, next.Size
	}
	part := &wire.TaskFile{Path: a.current.Name, Mode: a.current.Mode, Data: make([]byte, min(a.left, wire.TaskPartSize))}
	if _, err := io.ReadFull(a.current.Content, part.Data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if a.left -= int64(len(part.Data)); a.left > 0 {
		part.More = true
	} else {
		a.current = nil
	}
	return part, nil
}
