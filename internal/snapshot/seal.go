package snapshot

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// chunkSize is how much data one tag authenticates. It divides work among
	// processors and bounds the memory that reading takes.
	chunkSize = 1 << 20
	saltSize  = 32
	tagSize   = 16
	// maxWorkers bounds the processors that one snapshot keeps busy.
	maxWorkers = 4
)

// seal authenticates a manifest: HMAC-SHA-256 under a key of its own.
func seal(key, manifest []byte) string {
	mac := hmac.New(sha256.New, derive(key, nil, "sallyport snapshot manifest", sha256.Size))
	mac.Write(manifest)
	return hex.EncodeToString(mac.Sum(nil))
}

// derive returns the store's key for one purpose.
func derive(key, salt []byte, purpose string, size int) []byte {
	out, err := hkdf.Key(sha256.New, key, salt, purpose, size)
	if err != nil {
		panic(err) // of sizes alone, which are constants
	}
	return out
}

// A tagger computes the tags of one snapshot's chunks: AES-256-GMAC, which
// processors compute as fast as they read. Its key is unique to the snapshot,
// because the salt is, and no two chunks have the same nonce: it consists of
// the file's position in the manifest and the chunk's position in the file. So
// a tag is valid for no other snapshot, file or position. The number of chunks
// and the tags themselves are in the manifest, protected by its seal.
type tagger struct{ aead cipher.AEAD }

func newTagger(key, salt []byte) (*tagger, error) {
	block, err := aes.NewCipher(derive(key, salt, "sallyport snapshot files", 32))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &tagger{aead}, err
}

func (t *tagger) tag(file, chunk int, data []byte) [tagSize]byte {
	var nonce [12]byte
	binary.BigEndian.PutUint32(nonce[:4], uint32(file))
	binary.BigEndian.PutUint64(nonce[4:], uint64(chunk))
	return [tagSize]byte(t.aead.Seal(nil, nonce[:], nil, data))
}

// chunks returns the number of chunks of a file of that size.
func chunks(size int64) int64 { return (size + chunkSize - 1) / chunkSize }

// length returns the length of a file's chunk.
func length(size, chunk int64) int { return int(min(chunkSize, size-chunk*chunkSize)) }

// each calls f for the numbers below n, on as many goroutines as are useful,
// each with a worker of its own. It stops at the first error, and when ctx is
// done.
func each(ctx context.Context, n int, f func(w *worker, i int) error) error {
	var (
		next   atomic.Int64
		failed atomic.Bool
		group  sync.WaitGroup
		errs   = make([]error, min(runtime.GOMAXPROCS(0), maxWorkers, n))
	)
	for k := range errs {
		group.Go(func() {
			var w worker
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				err := context.Cause(ctx)
				if err == nil {
					err = f(&w, i)
				}
				if err != nil {
					errs[k] = err
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A worker has buffers for a chunk as stored, and for the original.
type worker struct{ stored, plain []byte }

// read reads a stored chunk. The slice belongs to the worker.
func (w *worker) read(f *os.File, offset int64, size int) ([]byte, error) {
	if w.stored == nil {
		w.stored = make([]byte, chunkSize)
	}
	data := w.stored[:size]
	n, err := f.ReadAt(data, offset)
	if n == size {
		return data, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("%s: %w", f.Name(), err)
}
