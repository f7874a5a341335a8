package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"

	"github.com/sallyport/sallyport/internal/image"
)

// Write writes an image as an OCI archive, which podman load, docker load (of any
// version) and sallyport image load read. dir is a folder for temporary files. The same
// content gives the same bytes.
func Write(ctx context.Context, to io.Writer, name string, c *image.Content, dir string) error {
	type member struct {
		v1.Descriptor
		file string
		data []byte
	}
	hash := func(hex string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex} }
	document := func(kind types.MediaType, data []byte) member {
		sum := sha256.Sum256(data)
		return member{v1.Descriptor{MediaType: kind, Size: int64(len(data)), Digest: hash(hex.EncodeToString(sum[:]))}, "", data}
	}
	config := document(types.OCIConfigJSON, c.Config)
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config.Descriptor}
	blobs := []member{config}
	for i, l := range c.Layers {
		file := filepath.Join(dir, fmt.Sprintf("packed-%d", i))
		size, digest, err := pack(ctx, file, l.Open)
		if err != nil {
			return err
		}
		desc := v1.Descriptor{MediaType: types.OCILayer, Size: size, Digest: hash(digest)}
		blobs = append(blobs, member{Descriptor: desc, file: file})
		manifest.Layers = append(manifest.Layers, desc)
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	top := document(types.OCIManifestSchema1, raw)
	blobs = append(blobs, top)
	entry := top.Descriptor
	entry.Platform = &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	entry.Annotations = map[string]string{annotationName: name, annotationFull: name}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{entry}})
	if err != nil {
		return err
	}

	w := tar.NewWriter(to)
	put := func(name string, size int64, r io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := io.CopyN(w, r, size)
		return err
	}
	putData := func(name string, data []byte) error { return put(name, int64(len(data)), bytes.NewReader(data)) }
	if err := errors.Join(putData("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), putData("index.json", index)); err != nil {
		return err
	}
	// Older versions of Docker read this alone, as docker save writes it.
	saved := []savedImage{{Config: blobName(config.Digest), RepoTags: []string{name}}}
	for _, l := range manifest.Layers {
		saved[0].Layers = append(saved[0].Layers, blobName(l.Digest))
	}
	list, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	if err := putData("manifest.json", list); err != nil {
		return err
	}
	written := map[v1.Hash]bool{}
	for _, b := range blobs {
		if written[b.Digest] {
			continue
		}
		written[b.Digest] = true
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if b.file == "" {
			err = putData(blobName(b.Digest), b.data)
		} else {
			err = putFile(put, blobName(b.Digest), b.Size, b.file)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func putFile(put func(string, int64, io.Reader) error, name string, size int64, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return put(name, size, f)
}

// pack compresses a layer into a file.
func pack(ctx context.Context, file string, open func() (io.ReadCloser, error)) (size int64, digest string, err error) {
	in, err := open()
	if err != nil {
		return 0, "", err
	}
	defer in.Close()
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	z := gzip.NewWriter(io.MultiWriter(f, sum))
	_, err = io.Copy(z, in)
	if err = errors.Join(err, z.Close()); err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	err = errors.Join(err, f.Close())
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return size, hex.EncodeToString(sum.Sum(nil)), err
}
