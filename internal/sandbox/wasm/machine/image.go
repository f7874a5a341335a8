//go:build linux

package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// A Program is what an image has loaded.
type Program struct {
	// Files are what sessions have at sandbox.ProgramDir.
	Files fs.FS
	// Argv is the command, with sandbox.InterpreterArg in it.
	Argv []string
	// Env is the environment, NAME=VALUE each.
	Env []string
	// Digest identifies all that.
	Digest string
}

// An Image is the state of an interpreter that has loaded a program. Sessions begin as
// copies of it. Booting is deterministic: the same interpreter and program give the
// same image, everywhere. Its methods are safe for concurrent use.
type Image struct {
	machine *Machine
	program Program
	base    *memfs.Base // the files that all sessions share
	header  imageHeader
	file    *os.File
	shared  []byte // the file's memory, read-only
}

// imageHeader is at the beginning of an image file, after its length in four bytes.
type imageHeader struct {
	Form        string   `json:"form"`
	Interpreter string   `json:"interpreter"` // its digest
	Program     string   `json:"program"`     // its digest
	Size        int64    `json:"size"`        // of the memory, which begins at imageStart
	Memory      string   `json:"memory"`      // the memory's SHA-256
	Globals     []uint64 `json:"globals"`
}

const (
	imageForm  = "sallyport-wasm-image-1"
	imageStart = 65536 // a multiple of every page size
	// maxGlobals bounds how many globals a module has.
	maxGlobals = 1024
	// bootMemory bounds the memory of an interpreter that boots.
	bootMemory = 512 << 20
)

// ErrImage says that a file holds no image of the interpreter and the program.
var ErrImage = errors.New("no image of this interpreter and program")

// Boot returns the image of a program. If the file is empty, the program boots and its
// state is written there. Otherwise it holds what an earlier Boot has written, and the
// caller has checked its authenticity. The file must not change any more, which a seal can
// ensure, and remains the caller's. Sessions do not need it after Image.Close.
func (m *Machine) Boot(ctx context.Context, p Program, file *os.File) (_ *Image, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	img := &Image{machine: m, program: p}
	if img.base, err = newBase(m.interpreter, p); err != nil {
		return nil, fmt.Errorf("the files of the program: %w", err)
	}
	if info.Size() == 0 {
		if err := img.boot(ctx, file); err != nil {
			return nil, fmt.Errorf("start the interpreter: %w", err)
		}
	}
	if err := img.open(file); err != nil {
		return nil, err
	}
	return img, nil
}

// boot runs the interpreter until it has loaded the program, and writes its state.
func (img *Image) boot(ctx context.Context, file *os.File) (err error) {
	b := &budget{limit: bootMemory}
	mem, err := newMemory(b, bootMemory, nil, 0, 0)
	if err != nil {
		return err
	}
	s := newSession(img, b, mem)
	defer s.release()
	said, err := s.bootSystem()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Kill(sandbox.Destroyed) })
	defer stop()
	boot := func() error {
		if err := s.instantiate(); err != nil {
			return err
		}
		for _, name := range []string{"load_data", "_initialize", "boot"} {
			results, err := s.call(s.module.ExportedFunction(name))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if name == "boot" && uint32(results[0]) != 0 {
				return errors.New("boot: the program could not be loaded")
			}
		}
		return nil
	}
	err = boot()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, tail(said()))
	}
	return img.write(file, s)
}

// tail returns the end of an interpreter's output for an error message.
func tail(said []byte) string {
	said = bytes.TrimSpace(said)
	if len(said) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s", said[max(0, len(said)-2000):])
}

// write writes the state of a session that has booted.
func (img *Image) write(file *os.File, s *Session) error {
	data := s.linear()
	sum := sha256.Sum256(data)
	header, err := json.Marshal(imageHeader{
		Form:        imageForm,
		Interpreter: img.machine.identity,
		Program:     img.program.Digest,
		Size:        int64(len(data)),
		Memory:      hex.EncodeToString(sum[:]),
		Globals:     s.globals(),
	})
	if err != nil {
		return err
	}
	if len(header) > imageStart-4 {
		return errors.New("the interpreter has too many globals")
	}
	// Pages of zeros are left out: the file has holes there.
	if err := file.Truncate(imageStart + int64(len(data))); err != nil {
		return err
	}
	zeros := make([]byte, pageSize)
	for at := 0; at < len(data); {
		end := at
		for end < len(data) && !bytes.Equal(data[end:end+pageSize], zeros) {
			end += pageSize
		}
		if end > at {
			if _, err := file.WriteAt(data[at:end], imageStart+int64(at)); err != nil {
				return err
			}
		}
		at = end + pageSize
	}
	// The header is written last, so that half an image is none.
	head := append([]byte{byte(len(header)), byte(len(header) >> 8), byte(len(header) >> 16), 0}, header...)
	_, err = file.WriteAt(head, 0)
	return err
}

// open maps the file.
func (img *Image) open(file *os.File) (err error) {
	header, err := readImageHeader(file)
	if err != nil {
		return err
	}
	if header.Interpreter != img.machine.identity || header.Program != img.program.Digest {
		return ErrImage
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != imageStart+header.Size {
		return fmt.Errorf("%w: its size is wrong", ErrImage)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	img.file = os.NewFile(uintptr(fd), file.Name())
	img.header = header
	// Older kernels refuse to share a file that is sealed; a private mapping that no one
	// writes to has the same pages.
	img.shared, err = unix.Mmap(fd, imageStart, int(header.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		img.file.Close()
		return os.NewSyscallError("mmap", err)
	}
	return nil
}

// readImageHeader reads and checks the header of an image.
func readImageHeader(r io.ReaderAt) (h imageHeader, err error) {
	head := make([]byte, imageStart)
	if n, err := r.ReadAt(head, 0); n < imageStart {
		return h, fmt.Errorf("%w: %w", ErrImage, errors.Join(err, io.ErrUnexpectedEOF))
	}
	length := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	if head[3] != 0 || length > imageStart-4 {
		return h, ErrImage
	}
	if err := json.Unmarshal(head[4:4+length], &h); err != nil {
		return h, fmt.Errorf("%w: %w", ErrImage, err)
	}
	if h.Form != imageForm || h.Size <= 0 || h.Size > maxMemory || h.Size%wasmPage != 0 || len(h.Globals) > maxGlobals {
		return h, ErrImage
	}
	return h, nil
}

// ID identifies the content of the image. Snapshots can be restored on an image with
// the same one.
func (img *Image) ID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n%v\n",
		img.header.Interpreter, img.header.Program, img.header.Memory, img.header.Size, img.header.Globals))
	return hex.EncodeToString(sum[:])
}

// MemoryBytes is the linear memory with which sessions begin. A limit below it cannot
// be kept.
func (img *Image) MemoryBytes() int64 { return img.header.Size }

// Close releases the image. Sessions go on.
func (img *Image) Close() error {
	return errors.Join(unix.Munmap(img.shared), img.file.Close())
}
