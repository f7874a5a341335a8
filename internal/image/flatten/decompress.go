package flatten

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is what a zstd stream may ask for; the reference program itself
// needs --long for more.
const maxWindow = 128 << 20

var (
	magicGzip = []byte{0x1f, 0x8b}
	magicZstd = []byte{0x28, 0xb5, 0x2f, 0xfd}
	others    = map[string][]byte{
		"xz":    {0xfd, '7', 'z', 'X', 'Z', 0},
		"bzip2": []byte("BZh"),
		"lz4":   {0x04, 0x22, 0x4d, 0x18},
	}
)

// decompress reads a stream that is plain, or compressed with gzip or zstd, as
// its beginning shows. The zstd stream may begin with a skippable frame.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(8)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, magicGzip):
		g, err := gzip.NewReader(b)
		if err != nil {
			return nil, blame("gzip: %w", err)
		}
		return g, nil
	case bytes.HasPrefix(head, magicZstd), len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18:
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, blame("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	for name, magic := range others {
		if bytes.HasPrefix(head, magic) {
			return nil, blame("it is compressed with %s; gzip, zstd and no compression are known", name)
		}
	}
	return io.NopCloser(b), nil
}

// Decompress returns the content of a file that is plain, or compressed with
// gzip or zstd.
func Decompress(r io.Reader) (io.ReadCloser, error) { return decompress(r) }
