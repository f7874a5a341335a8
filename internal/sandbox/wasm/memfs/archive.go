package memfs

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
)

// maxArchiveDepth bounds how deep the files of an archive lie.
const maxArchiveDepth = 64

// AddArchive adds the files of a tar archive below an absolute path. It takes regular
// files only, and none in the place of another. Before anything takes memory it calls
// take, with at least as many bytes: once for the content of a file, and once for each
// file and each directory. It trusts nothing that it reads.
func (b *Base) AddArchive(ctx context.Context, dir string, r io.ReaderAt, take func(n int64) error) error {
	if _, err := b.dir(dir); err != nil {
		return err
	}
	b.take = take
	defer func() { b.take = nil }()
	in := tar.NewReader(bufio.NewReaderSize(io.NewSectionReader(r, 0, math.MaxInt64), chunkSize))
	buffer := make([]byte, chunkSize)
	for total := int64(0); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		switch {
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%.200q is not a regular file", h.Name)
		case !fs.ValidPath(h.Name) || h.Name == ".":
			return fmt.Errorf("the name %.200q leads elsewhere", h.Name)
		case strings.Count(h.Name, "/") >= maxArchiveDepth:
			return fmt.Errorf("%.200q lies too deep", h.Name)
		}
		// Whatever a header says, an archive has no more content than bytes.
		if total += h.Size; h.Size < 0 || total < 0 {
			return tar.ErrHeader
		}
		if h.Size > 0 {
			if _, err := r.ReadAt(buffer[:1], total-1); err != nil {
				return io.ErrUnexpectedEOF
			}
		}
		if err := take(h.Size); err != nil {
			return err
		}
		var text strings.Builder
		text.Grow(int(h.Size))
		if n, err := io.CopyBuffer(&text, in, buffer); err != nil {
			return err
		} else if n != h.Size {
			return io.ErrUnexpectedEOF
		}
		perm := h.FileInfo().Mode().Perm() & 0o555
		if err := b.addFile(dir+"/"+h.Name, text.String(), perm, h.ModTime); err != nil {
			return err
		}
	}
}
