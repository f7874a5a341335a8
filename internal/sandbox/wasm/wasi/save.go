package wasi

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// What a place in the saved table of descriptors has.
const (
	savedFree   = 0
	savedStream = 1
	savedFile   = 2
	savedRoot   = 3 // a file that is the preopened directory
)

var errCorrupt = errors.New("the saved descriptors are damaged")

// Save writes the file system and the open descriptors. The instance does not run
// meanwhile.
func (h *Host) Save(w io.Writer) error {
	var files []*memfs.File
	table := binary.AppendUvarint(nil, uint64(h.monotonic()))
	table = binary.AppendUvarint(table, uint64(len(h.table)))
	for _, d := range h.table {
		switch {
		case d == nil:
			table = append(table, savedFree)
		case d.file == nil:
			table = append(table, savedStream, byte(d.stream), byte(d.flags))
		default:
			kind := byte(savedFile)
			if d.preopen {
				kind = savedRoot
			}
			table = append(table, kind, byte(d.flags))
			table = binary.AppendUvarint(table, uint64(d.off))
			files = append(files, d.file)
		}
	}
	if err := h.cfg.FS.Save(w, files); err != nil {
		return err
	}
	_, err := w.Write(table)
	return err
}

// Restore returns a host as it was saved, with the streams, the waiter and the clocks of
// cfg. It makes cfg.FS from the base and files. It reads no further than what was saved
// if r is a [bufio.Reader] of 64 KiB. It trusts nothing that it reads.
func Restore(cfg Config, base *memfs.Base, files memfs.Config, r io.Reader) (*Host, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	tree, open, err := memfs.Load(base, files, br)
	if err != nil {
		return nil, err
	}
	cfg.FS = tree
	h := newHost(cfg)
	if err := h.load(br, open); err != nil {
		return nil, fmt.Errorf("restore the descriptors: %w", err)
	}
	return h, nil
}

func (h *Host) load(r *bufio.Reader, files []*memfs.File) error {
	at, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	// The clock goes on where it was, or later.
	if now := h.monotonic(); at < 1<<62 && time.Duration(at) > now {
		h.ahead = time.Duration(at) - now
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	if n > uint64(h.cfg.OpenFiles) {
		return errCorrupt
	}
	for range n {
		d, err := loadDescriptor(r, &files)
		if err != nil {
			return err
		}
		h.table = append(h.table, d)
	}
	if len(files) > 0 {
		return errCorrupt
	}
	return nil
}

// loadDescriptor reads a place of the table. A file is the next of files.
func loadDescriptor(r *bufio.Reader, files *[]*memfs.File) (*descriptor, error) {
	kind, err := r.ReadByte()
	if err != nil || kind == savedFree {
		return nil, err
	}
	d := &descriptor{}
	switch {
	case kind == savedStream:
		stream, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		if d.stream = int(stream); d.stream > 2 {
			return nil, errCorrupt
		}
	case kind <= savedRoot && len(*files) > 0:
		d.file, *files = (*files)[0], (*files)[1:]
		d.preopen = kind == savedRoot
		if d.preopen && d.file.Kind() != memfs.Dir {
			return nil, errCorrupt
		}
	default:
		return nil, errCorrupt
	}
	flags, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	if d.flags = uint16(flags); d.flags&^flagsAll != 0 {
		return nil, errCorrupt
	}
	if d.file == nil {
		return d, nil
	}
	off, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if d.off = int64(off); d.off < 0 {
		return nil, errCorrupt
	}
	return d, nil
}
