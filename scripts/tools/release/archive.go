package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"time"
)

// archives writes the archive of each platform, with the executable at its top,
// where `sallyport upgrade` looks for it.
func (r *release) archives() error {
	for _, p := range r.programs {
		files := append([]file{{p.executable(), 0o755, p.data}}, r.shared...)
		name, pack := r.archiveName(p.target), tarred
		if p.system == "windows" {
			pack = zipped
		}
		data, err := pack(files, r.time)
		if err != nil {
			return err
		}
		if err := r.write(name, data); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) archiveName(t target) string {
	ending := ".tar.gz"
	if t.system == "windows" {
		ending = ".zip"
	}
	return "sallyport_" + r.version.String() + "_" + t.system + "_" + t.arch + ending
}

func sorted(files []file) []file {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

// tarred packs files that belong to root, without their directories.
func tarred(files []file, at time.Time) ([]byte, error) {
	var packed bytes.Buffer
	// Nothing of the machine or the moment is in its header.
	z, err := gzip.NewWriterLevel(&packed, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if err := writeTar(z, sorted(files), at); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// writeTar writes files in their order. A name that ends in / is a directory.
func writeTar(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.mode&sticky != 0 {
			h.Mode |= 0o1000
		}
		if f.name == imageHome+"/" {
			h.Uid, h.Gid = imageUser, imageUser
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// zipped packs files with the modes of Unix.
func zipped(files []file, at time.Time) ([]byte, error) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for _, f := range sorted(files) {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
