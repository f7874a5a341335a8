//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// imageFile returns a file with what was written, for another Boot.
func imageFile(t testing.TB, data []byte) *os.File {
	t.Helper()
	f, err := memoryFile("image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

var lettersProgram = Program{Digest: "letters", Argv: []string{sandbox.InterpreterArg}}

func TestImageFile(t *testing.T) {
	img := openTiny(t)
	m := img.machine
	f := imageFile(t, nil)
	first, err := m.Boot(t.Context(), lettersProgram, f)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(imageStart + 2*wasmPage); int64(len(data)) != want {
		t.Errorf("the file has %d bytes, want %d", len(data), want)
	}

	second, err := m.Boot(t.Context(), lettersProgram, imageFile(t, data))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if first.ID() != second.ID() || first.ID() != img.ID() {
		t.Errorf("the IDs of one image: %s, %s, %s", first.ID(), second.ID(), img.ID())
	}
	if got, want := second.MemoryBytes(), int64(2*wasmPage); got != want {
		t.Errorf("%d bytes of memory, want %d", got, want)
	}
	sealed := imageFile(t, data)
	if _, err := unix.FcntlInt(sealed.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	third, err := m.Boot(t.Context(), lettersProgram, sealed)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	s := start(t, third, sandbox.Limits{})
	s.say("c")
	s.hear("1")

	other := lettersProgram
	other.Digest = "other letters"
	if _, err := m.Boot(t.Context(), other, imageFile(t, data)); !errors.Is(err, ErrImage) {
		t.Errorf("the image of another program: %v, want %v", err, ErrImage)
	}
	for name, bad := range map[string][]byte{
		"short":      data[:100],
		"no memory":  data[:imageStart],
		"less":       data[:len(data)-1],
		"more":       append(bytes.Clone(data), 0),
		"zeros":      make([]byte, len(data)),
		"letters":    bytes.Repeat([]byte("{"), len(data)),
		"other form": bytes.Replace(data, []byte(imageForm), []byte("sallyport-wasm-image-0"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if img, err := m.Boot(t.Context(), lettersProgram, imageFile(t, bad)); !errors.Is(err, ErrImage) {
				t.Errorf("got %v, %v, want %v", img, err, ErrImage)
			}
		})
	}
}

// TestFailedBoot: what the interpreter said is in the error, and the file stays empty.
func TestFailedBoot(t *testing.T) {
	broken := tiny
	broken.Module = func() ([]byte, error) {
		// What load_data writes is not what boot looks for.
		return bytes.Replace(letters, []byte{0x41, 0xc4, 0xe6, 0x88, 0x89, 0x01}, []byte{0x41, 0xc4, 0xe6, 0x88, 0x89, 0x00}, 1), nil
	}
	m, err := Open(t.Context(), Config{Interpreter: broken})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	f := imageFile(t, nil)
	_, err = m.Boot(t.Context(), lettersProgram, f)
	if err == nil || !strings.Contains(err.Error(), "could not be loaded") {
		t.Errorf("got %v, want that the program could not be loaded", err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file: %v, %v, want empty", info, err)
	}
}

func TestCancelledBoot(t *testing.T) {
	img := openTiny(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := img.machine.Boot(ctx, lettersProgram, imageFile(t, nil))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestModulesThatAreNone(t *testing.T) {
	for name, module := range map[string][]byte{
		"empty":      nil,
		"no exports": letters[:8],
		"cut":        letters[:len(letters)-1],
	} {
		t.Run(name, func(t *testing.T) {
			i := Interpreter{Module: func() ([]byte, error) { return module, nil }, Digest: "none"}
			if m, err := Open(t.Context(), Config{Interpreter: i}); err == nil {
				m.Close(t.Context())
				t.Error("it was accepted")
			}
		})
	}
}

func FuzzImageHeader(f *testing.F) {
	head := `{"form":"` + imageForm + `","size":65536,"globals":[1,2]}`
	f.Add(append([]byte{byte(len(head)), 0, 0, 0}, head...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		data = append(data, make([]byte, imageStart)...)
		h, err := readImageHeader(bytes.NewReader(data))
		if err == nil && (h.Size <= 0 || h.Size > maxMemory || h.Size%wasmPage != 0) {
			t.Errorf("a size of %d", h.Size)
		}
	})
}

// TestMostMemory: no limit gives a memory of which the size is no number of 32 bits.
func TestMostMemory(t *testing.T) {
	for _, limit := range []int64{maxMemory, 1 << 32, 1 << 40} {
		m, err := newMemory(&budget{limit: limit}, limit, nil, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(len(m.all)); got != maxMemory {
			t.Errorf("a limit of %d: room for %d bytes, want %d", limit, got, int64(maxMemory))
		}
		m.Free()
	}
}
