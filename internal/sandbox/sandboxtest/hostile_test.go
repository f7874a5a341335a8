//go:build linux

package sandboxtest

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/wire"
)

// streams is a guest that says whatever a test says.
type streams struct {
	conn           *guest.Conn
	stdin          *os.File // what the host sends
	stdout, stderr *os.File // what it receives
}

func openStreams(t *testing.T) *streams {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	s := &streams{conn: guest.Open(inW, outR, errR, guest.Options{}), stdin: inR, stdout: outW, stderr: errW}
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// What is no frame ends the conversation, on either stream, however little it
// is and however silent the guest is then.
func TestNoiseThenSilence(t *testing.T) {
	for _, tt := range []struct {
		name, noise string
		output      bool // on the output stream
	}{
		{"control length", "\xff\xff\xff\xff", false},
		{"control empty frame", "\x00\x00\x00\x00", false},
		{"control not JSON", "\x00\x00\x00\x02{{", false},
		{"control unknown type", string(wire.AppendControl(nil, []byte(`{"type":"sudo"}`))), false},
		{"output length", "\xff\xff\xff\xff", true},
		{"output empty frame", "\x00\x00\x00\x00", true},
		{"output text", "ld.so: cannot open shared object\n", true},
		{"output exit nonsense", string(wire.AppendOutput(nil, wire.KindExit, []byte(`{"code":1e99}`))), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openStreams(t)
			to := s.stdout
			if tt.output {
				to = s.stderr
			}
			if _, err := to.WriteString(tt.noise); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.conn.Dead():
				if err := s.conn.Err(); err == nil {
					t.Error("dead without a reason")
				}
			case <-time.After(settleTime):
				t.Error("the conversation goes on after what is no frame")
			}
		})
	}
}

// The artifacts of a done frame are bounded before they take memory.
func TestManyArtifacts(t *testing.T) {
	var body strings.Builder
	body.WriteString(`{"type":"done","id":1,"status":"ok","exitCode":0,"artifacts":[`)
	body.WriteString(strings.Repeat("{},", 10_000_000))
	body.WriteString(`{}]}`)
	frame := []byte(body.String())
	before := heap()
	var worst int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				worst = max(worst, heap()-before)
			}
		}
	}()
	_, err := wire.DecodeFromGuest(frame)
	close(stop)
	<-stopped
	if !errors.Is(err, wire.ErrFrame) {
		t.Errorf("ten million artifacts: %v", err)
	}
	t.Logf("a frame of %d MB took %d MB", len(frame)>>20, worst>>20)
	if worst > 64<<20 {
		t.Errorf("a frame of %d MB took %d MB", len(frame)>>20, worst>>20)
	}
}

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		output string
		want   string
		ok     bool
	}{
		{"PROBE {\"verdict\":\"reached\",\"detail\":\"x\"}\n", reached, true},
		{"noise\nPROBE {\"verdict\":\"blocked\"}\nmore", blocked, true},
		{"PROBE not JSON\n", "", false},
		{"", "", false},
	} {
		v, ok := findVerdict(tt.output)
		if ok != tt.ok || v.Verdict != tt.want {
			t.Errorf("%q: %+v, %v", tt.output, v, ok)
		}
	}
	call, err := probeCall("x", "return \"'\\\\\n\"", map[string]any{"s": "ü\"\\\n"})
	if err != nil {
		t.Fatal(err)
	}
	literal := strings.TrimSuffix(strings.TrimPrefix(call, "run_attempt(json.loads("), "))\n")
	var spec string
	if err := json.Unmarshal([]byte(literal), &spec); err != nil {
		t.Errorf("%s: %v", call, err)
	}
}
