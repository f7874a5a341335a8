package runpod

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// FuzzStatus: whatever a service or a worker answers, the result is bounded,
// its files stay where they belong, and what it says is one printable line.
func FuzzStatus(f *testing.F) {
	report, err := json.Marshal(strong())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		`{"id":"a","status":"COMPLETED","delayTime":5,"executionTime":"7","output":{"stdout":"x","stderr":"","return_code":0}}`,
		`{"id":"a","status":"COMPLETED","output":{"stdout":"x","return_code":1,"sallyport":{"version":1,"run":"run-1","report":` + string(report) + `,"files":[{"path":"a/b","data":"YQ=="},{"path":"a","data":""}]}}}`,
		`{"status":"COMPLETED","output":{"stdout":null,"return_code":1e99,"sallyport":{"version":1,"run":"run-1","end":"timed-out","usage":{"cpuSeconds":-1,"gpus":-4},"truncated":{"stdout":-9}}}}`,
		`{"status":"FAILED","error":"{\"error_type\": \"<class 'ValueError'>\", \"error_message\": \"boom\\u001b[2J\"}"}`,
		`{"status":"FAILED","error":{"a":1}}`, `{"status":"COMPLETED","output":[1,[2,{"return_code":0}]]}`, `{"status":"TIMED_OUT","retries":1e300,"workerId":[]}`,
		`{"status":"CANCELLED"}`, `{"status":"COMPLETED","output":"text"}`, `{"status":5}`, `[]`,
	} {
		f.Add([]byte(s))
	}
	b, err := New(Options{Key: func(context.Context) (string, error) { return "k", nil }, Endpoint: endpoint, State: store.At(""), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st := &jobStatus{}
		if json.Unmarshal(data, st) != nil || !final(string(st.Status)) {
			return
		}
		r := &run{b: b, id: "run-1", api: b.api(endpoint), spec: runSpec{Endpoint: endpoint, Timeout: time.Minute, OutputBytes: 1000,
			MinIsolation: "container", Require: map[string]string{"memory": "hard"}}}
		res, err := r.conclude(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Stdout) > 1000 || len(res.Stderr) > 1000 || res.Queued < 0 || res.Ran < 0 || res.Truncated.Stdout < 0 {
			t.Errorf("%+v", res)
		}
		if (res.End == batch.Exited) != (res.Error == "") {
			t.Errorf("end %q, error %q", res.End, res.Error)
		}
		if res.End == batch.Exited && unmet(r.answer.Report, sandbox.ContainerIsolation, map[sandbox.Resource]sandbox.Enforcement{sandbox.Memory: sandbox.Hard}) != "" {
			t.Errorf("a good run without what was demanded: %s", data)
		}
		for _, text := range append(res.Notes, res.Error) {
			if strings.ContainsAny(text, "\x1b\n\r\x00") || len(text) > 10000 {
				t.Errorf("%q", text)
			}
		}
		dir, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if _, err := r.Fetch(t.Context(), dir); err != nil && !strings.Contains(err.Error(), "too long") {
			t.Errorf("fetch: %v", err)
		}
	})
}

func FuzzListed(f *testing.F) {
	f.Add([]byte(`{"requests":[{"id":"a-u1","status":"IN_QUEUE","input":{"sallyport":{"run":"run-1","owner":"o","sentMs":1}}}]}`))
	f.Add([]byte(`[{"id":"../x","input":{"sallyport":{"run":"r"}}},{"id":"b","input":{"input":{"sallyport":{"run":"r","sentMs":-1}}}}]`))
	f.Add([]byte(`{"a":{"b":{"c":[[[[[[[[1]]]]]]]]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, j := range listed(data) {
			if !validJob().MatchString(j.id) || j.run == "" {
				t.Errorf("%+v", j)
			}
		}
	})
}

// FuzzStream: what is shown of a stream is its beginning, without holes.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"status":"IN_PROGRESS","stream":[{"output":{"started":{"attempt":"a"}}},{"output":{"stdout":"ab"}},{"output":{"stdout":"c","at":2}}]}`))
	f.Add([]byte(`{"stream":[{"output":{"stdout":"ab"}},{"output":{"stdout":"c","at":5}},{"output":{"stdout":"c","at":2}},{"output":5},{}]}`))
	f.Add([]byte(`{"stream":[{"output":{"stdout":"ab"}},{"output":{"started":{"attempt":"a"}}},{"output":{"started":{"attempt":"b"}}},{"output":{"stdout":"x"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s streamed
		if json.Unmarshal(data, &s) != nil {
			return
		}
		r := &run{spec: runSpec{OutputBytes: 1000}}
		var shown int64
		r.Observe(func(p batch.Progress) { shown += int64(len(p.Stdout)) })
		r.chunks(s)
		if shown != r.out[0].next && !r.out[0].stopped || shown > 1000 {
			t.Errorf("%d bytes are shown, %d are known", shown, r.out[0].next)
		}
	})
}
