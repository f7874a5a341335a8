package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/flatten"
)

// Annotations that name images in layouts.
const (
	annotationName = "org.opencontainers.image.ref.name"
	annotationFull = "io.containerd.image.name"
)

// fromLayout reads an OCI layout.
func fromLayout(ctx context.Context, m members) ([]Image, error) {
	var index v1.IndexManifest
	if err := document(m, "index.json", &index); err != nil {
		return nil, err
	}
	if len(index.Manifests) == 0 || len(index.Manifests) > maxImages {
		return nil, fmt.Errorf("%w: it has %d images", flatten.ErrLayer, len(index.Manifests))
	}
	var out []Image
	var other error
	for _, desc := range index.Manifests {
		if p := desc.Platform; p != nil && (p.OS != "linux" || p.Architecture != runtime.GOARCH) && len(index.Manifests) > 1 {
			other = fmt.Errorf("%w: it is for %s", image.ErrUnusable, p)
			continue
		}
		content, err := fromManifest(ctx, m, desc, 0)
		if err != nil {
			return nil, err
		}
		img := Image{Content: content}
		if full := desc.Annotations[annotationFull]; full != "" {
			img.Names = append(img.Names, full)
		} else if name := desc.Annotations[annotationName]; strings.ContainsAny(name, ":/@") {
			img.Names = append(img.Names, name) // otherwise it is a tag without a name
		}
		out = append(out, img)
	}
	if len(out) == 0 {
		return nil, other
	}
	return out, nil
}

func fromManifest(ctx context.Context, m members, desc v1.Descriptor, depth int) (*image.Content, error) {
	raw, err := blob(ctx, m, desc)
	if err != nil {
		return nil, err
	}
	if desc.MediaType.IsIndex() {
		var index v1.IndexManifest
		if err := json.Unmarshal(raw, &index); err != nil || depth > maxDepth {
			return nil, fmt.Errorf("%w: the index %s cannot be read", flatten.ErrLayer, desc.Digest)
		}
		chosen, err := image.ChoosePlatform(&index)
		if err != nil {
			return nil, err
		}
		for _, d := range index.Manifests {
			if d.Digest == chosen {
				return fromManifest(ctx, m, d, depth+1)
			}
		}
	}
	if !desc.MediaType.IsImage() {
		return nil, fmt.Errorf("%w: it contains %q instead of an image", flatten.ErrLayer, desc.MediaType)
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, fmt.Errorf("%w: the manifest %s: %w", flatten.ErrLayer, desc.Digest, err)
	}
	c := &image.Content{Digest: desc.Digest.String()}
	if c.Config, err = blob(ctx, m, manifest.Config); err != nil {
		return nil, err
	}
	if len(manifest.Layers) > maxLayers {
		return nil, fmt.Errorf("%w: it has %d layers", flatten.ErrLayer, len(manifest.Layers))
	}
	for _, l := range manifest.Layers {
		if err := verify(ctx, m, l); err != nil {
			return nil, err
		}
		c.Layers = append(c.Layers, opened(m, blobName(l.Digest), l.Digest.String(), l.Size))
	}
	return c, nil
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// blob reads a small blob of a layout and checks it.
func blob(ctx context.Context, m members, desc v1.Descriptor) ([]byte, error) {
	if desc.Size > maxDocument {
		return nil, fmt.Errorf("%w: the document %s of %d bytes", flatten.ErrLayer, desc.Digest, desc.Size)
	}
	if err := verify(ctx, m, desc); err != nil {
		return nil, err
	}
	raw, err := read(m, blobName(desc.Digest))
	if err == nil && image.ID(raw) != desc.Digest.String() {
		err = fmt.Errorf("%w: %s changed while it was read", flatten.ErrLayer, desc.Digest)
	}
	return raw, err
}

// verify checks a blob's size and digest.
func verify(ctx context.Context, m members, desc v1.Descriptor) error {
	if m.verified[desc.Digest] {
		return nil
	}
	if desc.Digest.Algorithm != "sha256" || len(desc.Digest.Hex) != 64 {
		return fmt.Errorf("%w: the digest %q is not a SHA-256 digest", flatten.ErrLayer, desc.Digest)
	}
	r, _, err := m.open(blobName(desc.Digest))
	if err != nil {
		return fmt.Errorf("the blob %s: %w", desc.Digest, err)
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(r, desc.Size+1))
	switch got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n != desc.Size || got != desc.Digest.String():
		return fmt.Errorf("%w: the blob %s has %d bytes with the digest %s, and should have %d", flatten.ErrLayer, desc.Digest, n, got, desc.Size)
	}
	m.verified[desc.Digest] = true
	return nil
}
