//go:build linux

package machine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// saved returns a snapshot of a session that has obeyed letters.
func saved(t testing.TB, img *Image, letters, answers string) []byte {
	t.Helper()
	s := start(t, img, sandbox.Limits{})
	s.say(letters)
	s.hear(answers)
	var data bytes.Buffer
	if err := s.Snapshot(t.Context(), &data, false); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// withHeader changes the header of a snapshot.
func withHeader(t testing.TB, data []byte, change func(*snapshotHeader)) []byte {
	t.Helper()
	n := 4 + binary.LittleEndian.Uint32(data)
	var h snapshotHeader
	if err := json.Unmarshal(data[4:n], &h); err != nil {
		t.Fatal(err)
	}
	change(&h)
	head, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
	return append(append(out, head...), data[n:]...)
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	img := openTiny(t)
	good := saved(t, img, "cw", "1w")
	header := func(change func(*snapshotHeader)) []byte { return withHeader(t, good, change) }
	for name, bad := range map[string][]byte{
		"empty":          nil,
		"long header":    append([]byte{0, 0, 1, 1}, good[4:]...),
		"no JSON":        append([]byte{4, 0, 0, 0}, good[5:]...),
		"form":           header(func(h *snapshotHeader) { h.Form = "x" }),
		"image":          header(func(h *snapshotHeader) { h.Image = "x" }),
		"less memory":    header(func(h *snapshotHeader) { h.Size = wasmPage }),
		"half a page":    header(func(h *snapshotHeader) { h.Size++ }),
		"too much":       header(func(h *snapshotHeader) { h.Size = 1<<32 + wasmPage }),
		"few globals":    header(func(h *snapshotHeader) { h.Globals = nil }),
		"negative time":  header(func(h *snapshotHeader) { h.CPU = -1 }),
		"without files":  good[:len(good)-40],
		"without memory": good[:600],
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := pipes(t)
			s, err := img.Restore(t.Context(), c, bytes.NewReader(bad))
			if !errors.Is(err, ErrSnapshot) {
				t.Errorf("got %v, want %v", err, ErrSnapshot)
			}
			if err == nil {
				s.Kill(sandbox.Destroyed)
				<-s.Done()
			}
		})
	}
	t.Run("more than the limit", func(t *testing.T) {
		large := saved(t, img, "g", "y")
		c, _, _ := pipes(t)
		c.Limits.MemoryBytes = 1 << 20
		if _, err := img.Restore(t.Context(), c, bytes.NewReader(large)); err == nil {
			t.Error("a session got more than its limit")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c, _, _ := pipes(t)
		if _, err := img.Restore(ctx, c, bytes.NewReader(good)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
	r := restore(t, img, good)
	r.say("cv")
	r.hear("2A")
}

func TestReadPages(t *testing.T) {
	run := func(first, count uint32, data int) []byte {
		head := binary.LittleEndian.AppendUint32(nil, first)
		return append(binary.LittleEndian.AppendUint32(head, count), bytes.Repeat([]byte{1}, data)...)
	}
	end := make([]byte, 8)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, test := range map[string]struct {
		data []byte
		ok   bool
	}{
		"none":          {end, true},
		"first":         {join(run(0, 1, pageSize), end), true},
		"two runs":      {join(run(1, 1, pageSize), run(2, 2, 2*pageSize), end), true},
		"overlap":       {join(run(1, 2, 2*pageSize), run(2, 1, pageSize), end), false},
		"backwards":     {join(run(2, 1, pageSize), run(1, 1, pageSize), end), false},
		"beyond":        {join(run(4, 1, pageSize), end), false},
		"too many":      {join(run(3, 2, 2*pageSize), end), false},
		"overflow":      {join(run(1, 1<<32-1, pageSize), end), false},
		"none in a run": {join(run(1, 0, 0), end), false},
		"cut":           {run(1, 1, pageSize-1), false},
		"no end":        {run(1, 1, pageSize), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := readPages(bytes.NewReader(test.data), make([]byte, 4*pageSize))
			if test.ok != (err == nil) || err != nil && !errors.Is(err, ErrSnapshot) {
				t.Errorf("got %v, want success %v", err, test.ok)
			}
		})
	}
}

func TestWritePages(t *testing.T) {
	image := bytes.Repeat([]byte{7}, 3*pageSize)
	data := append(bytes.Clone(image), make([]byte, 2*pageSize)...)
	data[pageSize] = 8
	data[len(data)-1] = 9
	var b bytes.Buffer
	if err := writePages(&b, data, image); err != nil {
		t.Fatal(err)
	}
	if got, want := b.Len(), 2*(8+pageSize)+8; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	got := append(bytes.Clone(image), make([]byte, 2*pageSize)...)
	if err := readPages(&b, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("what was read differs from what was written")
	}
}

// FuzzRestore: no snapshot, however wild, harms the process.
func FuzzRestore(f *testing.F) {
	img := openTiny(f)
	good := saved(f, img, "cwg", "1wy")
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(withHeader(f, good, func(h *snapshotHeader) { h.Globals = []uint64{1, 1 << 63} }))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, in, out := pipes(t)
		c.Limits.MemoryBytes = 8 << 20
		s, err := img.Restore(t.Context(), c, bytes.NewReader(data))
		if err != nil {
			return
		}
		k := attach(t, s, in, out)
		k.say("c")
		in.Close()
		k.ends()
	})
}
