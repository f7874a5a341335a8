package kaggle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/sallyport/sallyport/internal/batch"
)

// downloads is how often the download of a file is tried. Each attempt after the
// first requests new URLs, because the old ones may have expired.
const downloads = 5

type writer interface {
	io.Writer
	Close() error
}

type discardClose struct{ *bytes.Buffer }

func (discardClose) Close() error { return nil }

func sortFiles(files []wireFile) {
	slices.SortFunc(files, func(a, b wireFile) int { return cmp.Compare(a.Path, b.Path) })
}

// fetch downloads a file of the listing into what open returns, which is opened
// anew for each attempt.
func (b *Service) fetch(ctx context.Context, about kernelRequest, l *listing, file string, limit int64, open func() (writer, error)) (int64, error) {
	pause := b.client.pause
	for try := 1; ; try++ {
		n, err := b.fetchOnce(ctx, l, file, limit, open)
		var refusal *refusedError
		var disk *diskError
		if err == nil || try == downloads || ctx.Err() != nil || errors.Is(err, errTooLarge) || errors.As(err, &refusal) || errors.As(err, &disk) {
			return n, err
		}
		if waited := wait(ctx, after(err, &pause)); waited != nil {
			return 0, waited
		}
		if fresh, err := b.list(ctx, about); err == nil {
			l.files = fresh.files
		}
	}
}

// diskError is a failure of this machine, not of the network.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

type diskWriter struct{ w io.Writer }

func (d diskWriter) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	if err != nil {
		err = &diskError{err}
	}
	return n, err
}

func (b *Service) fetchOnce(ctx context.Context, l *listing, file string, limit int64, open func() (writer, error)) (int64, error) {
	link := l.files[file]
	if link == "" {
		return 0, errors.New("the run has no such file at Kaggle")
	}
	w, err := open()
	if err != nil {
		return 0, &diskError{err}
	}
	n, err := b.client.download(ctx, link, limit, diskWriter{w})
	return n, errors.Join(err, w.Close())
}

// Fetch implements batch.Run.
func (r *run) Fetch(ctx context.Context, dir *os.Root) ([]batch.File, error) {
	o, err := r.end(ctx)
	if err != nil {
		return nil, err
	}
	if len(o.files) == 0 {
		return nil, nil
	}
	l, err := r.backend.list(ctx, r.about())
	if err != nil {
		return nil, fail("fetch", nil, explain(err))
	}
	var got []batch.File
	budget := r.backend.opts.MaxOutput
	packed := map[string]wantedFile{}
	for _, f := range o.files {
		if f.packed {
			packed[f.path] = f
			continue
		}
		n, err := r.fetchFile(ctx, dir, l, f, budget)
		if f.size < 0 && errors.Is(err, errTooLarge) {
			r.backend.opts.Log.Warn("a file of a run is too large and stays at Kaggle", "run", r.id, "file", f.path, "where", r.page())
			r.mu.Lock()
			o.left = true
			r.mu.Unlock()
			continue
		}
		if err != nil {
			return nil, fail("fetch", nil, fmt.Errorf("%s: %w", f.path, err))
		}
		budget -= n
		got = append(got, batch.File{Path: f.path, Size: n})
	}
	if len(packed) > 0 {
		files, err := r.unpack(ctx, dir, l, packed)
		if err != nil {
			return nil, fail("fetch", nil, err)
		}
		got = append(got, files...)
	}
	slices.SortFunc(got, func(a, b batch.File) int { return cmp.Compare(a.Path, b.Path) })
	return got, nil
}

// fetchFile downloads one file. If that fails, it leaves nothing of the file.
func (r *run) fetchFile(ctx context.Context, dir *os.Root, l *listing, f wantedFile, budget int64) (int64, error) {
	limit := f.size
	switch {
	case f.path == manifestFile:
		limit = maxManifest
	case f.size < 0:
		limit = budget
	}
	var n int64
	var err error
	for range 3 { // a file that is not what the list says is fetched again
		var out *checkedFile
		n, err = r.backend.fetch(ctx, r.about(), l, f.path, limit, func() (writer, error) {
			out, err = create(dir, f.path)
			return out, err
		})
		if err == nil && (f.size >= 0 && n != f.size || f.sha256 != "" && f.sha256 != out.sum()) {
			err = fmt.Errorf("the %d bytes that arrived differ from the listing", n)
			continue
		}
		break
	}
	if err != nil {
		_ = dir.Remove(filepath.FromSlash(f.path))
		return 0, err
	}
	return n, nil
}

// checkedFile is a file that is written and hashed.
type checkedFile struct {
	file *os.File
	hash hash.Hash
}

// create opens a new file in dir, with the directories above it.
func create(dir *os.Root, path string) (*checkedFile, error) {
	local := filepath.FromSlash(path)
	if above := filepath.Dir(local); above != "." {
		if err := dir.MkdirAll(above, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := dir.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &checkedFile{f, sha256.New()}, nil
}

func (f *checkedFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.hash.Write(p[:n])
	return n, err
}

// Close closes the file.
func (f *checkedFile) Close() error { return f.file.Close() }

func (f *checkedFile) sum() string { return hex.EncodeToString(f.hash.Sum(nil)) }

// unpack downloads and extracts the archive into which the bootstrap packs
// small files.
func (r *run) unpack(ctx context.Context, dir *os.Root, l *listing, wanted map[string]wantedFile) ([]batch.File, error) {
	defer func() { _ = dir.Remove(archiveFile) }()
	var size int64 = 1 << 20
	for _, f := range wanted {
		size += f.size + 2048
	}
	if _, err := r.backend.fetch(ctx, r.about(), l, archiveFile, size, func() (writer, error) { return create(dir, archiveFile) }); err != nil {
		return nil, fmt.Errorf("%s: %w", archiveFile, err)
	}
	f, err := dir.Open(archiveFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return extract(dir, f, wanted)
}

// extract extracts the wanted files from an archive, each once and as listed,
// and skips everything else.
func extract(dir *os.Root, from io.Reader, wanted map[string]wantedFile) ([]batch.File, error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archiveFile, err)
	}
	var total int64 = 1 << 20
	for _, f := range wanted {
		total += f.size + 4096
	}
	t := tar.NewReader(io.LimitReader(z, total))
	var got []batch.File
	done := map[string]bool{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archiveFile, err)
		}
		f, ok := wanted[h.Name]
		if !ok || done[h.Name] || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size != f.size {
			return nil, fmt.Errorf("%s: %s differs from the listing", archiveFile, f.path)
		}
		out, err := create(dir, f.path)
		if err != nil {
			return nil, err
		}
		n, err := io.Copy(out, io.LimitReader(t, f.size))
		if err := errors.Join(err, out.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if f.sha256 != "" && out.sum() != f.sha256 {
			return nil, fmt.Errorf("%s: %s differs from the listing", archiveFile, f.path)
		}
		done[h.Name] = true
		got = append(got, batch.File{Path: f.path, Size: n})
	}
	if len(got) != len(wanted) {
		return nil, fmt.Errorf("%s contains %d of the %d listed files", archiveFile, len(got), len(wanted))
	}
	return got, nil
}
