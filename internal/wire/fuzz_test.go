package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// addGoldens seeds a fuzz target with the golden frames that match pattern.
func addGoldens(f *testing.F, pattern string) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		f.Fatal("no goldens", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzReader: whatever arrives, a reader returns frames within their bounds or
// an error, and consumes exactly what it returns.
func FuzzReader(f *testing.F) {
	addGoldens(f, "*-*")
	f.Fuzz(func(t *testing.T, in []byte) {
		const max = 1 << 16
		r := NewReader(bytes.NewReader(in))
		var again []byte
		for {
			b, err := r.Control(max)
			if err != nil {
				break
			}
			if len(b) < minControl || len(b) > max {
				t.Fatalf("a frame of %d bytes", len(b))
			}
			again = AppendControl(again, b)
		}
		if !bytes.HasPrefix(in, again) {
			t.Fatal("the frames are not what arrived")
		}
		r = NewReader(bytes.NewReader(in))
		again = nil
		for {
			kind, b, err := r.Output()
			if err != nil {
				break
			}
			again = AppendOutput(again, kind, b)
		}
		if !bytes.HasPrefix(in, again) {
			t.Fatal("the output frames are not what arrived")
		}
	})
}

// FuzzDecodeFromGuest: a decoded frame is exactly one message, within bounds.
func FuzzDecodeFromGuest(f *testing.F) {
	addGoldens(f, "from-guest-*")
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, body := range [][]byte{in, in[min(headerSize, len(in)):]} {
			m, err := DecodeFromGuest(body)
			if err != nil {
				continue
			}
			set := 0
			for _, is := range []bool{m.Ready != nil, m.Call != nil, m.Behind != nil, m.Cancel != nil, m.Done != nil} {
				if is {
					set++
				}
			}
			if set != 1 {
				t.Fatalf("%d messages in %q", set, body)
			}
			if m.Call != nil && (!json.Valid(m.Call.Params) || len(m.Call.Method) > maxMethod) {
				t.Fatalf("a call with %q", m.Call.Params)
			}
		}
		_, _ = DecodeExit(in)
	})
}

// FuzzEncodeExec: whatever the code is, the frame is one valid object with it.
func FuzzEncodeExec(f *testing.F) {
	f.Add("print(1)", "<cell 1>")
	f.Add("\x00\u2028</script>", "\xff")
	f.Fuzz(func(t *testing.T, code, filename string) {
		frame, err := EncodeExec(&Exec{ID: 1, Code: code, Filename: filename})
		if err != nil {
			t.Fatal(err)
		}
		body, err := NewReader(bytes.NewReader(frame.Bytes())).Control(MaxToGuest)
		if err != nil {
			t.Fatal(err)
		}
		var got Exec
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if got.Code != string([]rune(code)) {
			t.Fatalf("%q became %q", code, got.Code)
		}
	})
}
