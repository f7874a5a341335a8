package build

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// run runs Python code in a new sandbox with a root and writes its standard output to
// out.
func (b *Builder) run(ctx context.Context, root sandbox.Root, code string, out io.Writer) error {
	limits := sandbox.DefaultLimits
	limits.MemoryBytes = 2 << 30 // enough for a compiler
	if b.Pip.MaxBytes != 0 {
		limits.PackagesBytes = b.Pip.MaxBytes
	}
	spec := &sandbox.Spec{
		ID:     "build-" + strings.ToLower(rand.Text()[:12]),
		Owner:  "image build",
		Root:   root,
		Limits: limits,
	}
	if err := b.Run(ctx, spec, code, out); err != nil {
		return fmt.Errorf("in the base's Python: %w", err)
	}
	return nil
}

// limitedBuffer is a buffer with a limit.
type limitedBuffer struct {
	b    bytes.Buffer
	left int
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("the output of the base's Python is too large")
	}
	return l.b.Write(p)
}
