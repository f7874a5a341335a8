package upgrade

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Limits of a release's archive.
const (
	maxExecutable = 512 << 20
	maxUnpacked   = 2 * maxExecutable
	maxEntries    = 1000
)

var errNoExecutable = errors.New("the archive has no executable at its top level")

// extract writes the one file called name at the top level of an archive to w.
// It creates no other file, so paths and links in the archive lead nowhere.
func extract(archive *os.File, name string, w io.Writer) error {
	if strings.HasSuffix(name, ".exe") {
		info, err := archive.Stat()
		if err != nil {
			return err
		}
		return extractZip(archive, info.Size(), name, w)
	}
	return extractTar(archive, name, w)
}

func extractTar(r io.Reader, name string, w io.Writer) error {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("the archive cannot be read: %w", err)
	}
	limited := &io.LimitedReader{R: unpacked, N: maxUnpacked}
	files := tar.NewReader(limited)
	for range maxEntries {
		h, err := files.Next()
		switch {
		case limited.N <= 0:
			return fmt.Errorf("the archive is %w", errTooLarge)
		case err == io.EOF:
			return errNoExecutable
		case err != nil:
			return fmt.Errorf("the archive cannot be read: %w", err)
		case strings.TrimPrefix(h.Name, "./") != name:
			continue
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%s in the archive is not a regular file", name)
		}
		return write(w, files, h.Size, name)
	}
	return fmt.Errorf("the archive has more than %d entries", maxEntries)
}

func extractZip(r io.ReaderAt, size int64, name string, w io.Writer) error {
	files, err := zip.NewReader(r, size)
	if err != nil {
		return fmt.Errorf("the archive cannot be read: %w", err)
	}
	for _, f := range files.File {
		if f.Name != name {
			continue
		}
		if !f.Mode().IsRegular() {
			return fmt.Errorf("%s in the archive is not a regular file", name)
		}
		if f.UncompressedSize64 > maxExecutable {
			return fmt.Errorf("%s in the archive is %w", name, errTooLarge)
		}
		content, err := f.Open()
		if err != nil {
			return fmt.Errorf("the archive cannot be read: %w", err)
		}
		defer content.Close()
		return write(w, content, int64(f.UncompressedSize64), name)
	}
	return errNoExecutable
}

// write copies exactly size bytes.
func write(w io.Writer, r io.Reader, size int64, name string) error {
	if size > maxExecutable {
		return fmt.Errorf("%s in the archive is %w", name, errTooLarge)
	}
	n, err := io.Copy(w, io.LimitReader(r, maxExecutable+1))
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, want %d", n, size)
	}
	if err != nil {
		return fmt.Errorf("%s in the archive: %w", name, err)
	}
	return nil
}
