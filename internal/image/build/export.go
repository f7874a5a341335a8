package build

import (
	"context"
	"io"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
)

// Export writes an image of the store, whose root the caller holds, as an archive
// that engines load: with one layer, and so with another ID than in the store.
func Export(ctx context.Context, store *image.Store, root *image.Root, name string, to io.Writer) error {
	dir, remove, err := store.Scratch()
	if err != nil {
		return err
	}
	defer remove()
	out, err := (&Builder{Store: store}).Packages(ctx, root, nil, dir)
	if err != nil {
		return err
	}
	return archive.Write(ctx, to, name, out.Content, dir)
}
