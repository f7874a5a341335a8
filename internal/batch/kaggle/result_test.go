package kaggle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const goodResult = `{"version":1,"run":"run-1","codeSha256":"h","end":"exited","exitCode":3,"stdout":{"data":"aGk=","omitted":0},"stderr":{"data":"","omitted":7},
"began":1.5,"seconds":2.5,"cpuSeconds":1.25,"peakBytes":1048576,"cpuModel":"Some CPU","cpus":4,"gpus":["Tesla T4","Tesla T4"],"gpuJoules":12.5,"gpuMethod":"nvml-energy","notes":["n"],
"codecarbon":{"version":"3.3.2","seconds":2,"kWh":0.001,"kgCO2e":0.0002,"country":"USA"},"files":[{"path":"a/b","size":3}]}`

func TestDecodeResult(t *testing.T) {
	r, streams, err := decodeResult(strings.NewReader(goodResult), "run-1", "h", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	h := &handle{Accelerator: shapeGPU, Pushed: time.Unix(1, 0), Until: time.Unix(100, 0)}
	b := r.batchResult(streams, h)
	if b.ExitCode != 3 || string(b.Stdout) != "hi" || b.Truncated.Stderr != 7 || b.Ran != 2500*time.Millisecond || b.Queued != 500*time.Millisecond {
		t.Errorf("%+v", b)
	}
	if u := b.Usage; u.CPU != 1250*time.Millisecond || u.GPUs != 2 || u.GPUModel != "Tesla T4" || u.GPUJoules != 12.5 || u.PeakBytes != 1<<20 || u.CPUModel != "Some CPU" {
		t.Errorf("%+v", u)
	}
	if notes := strings.Join(b.Notes, "\n"); !strings.Contains(notes, "codecarbon 3.3.2") || !strings.Contains(notes, "1 Wh") || !strings.Contains(notes, "0.2 g CO2e (USA)") {
		t.Errorf("%s", notes)
	}
	for name, change := range map[string][2]string{
		"another run":   {`"run-1"`, `"run-2"`},
		"another code":  {`"h"`, `"i"`},
		"a version":     {`"version":1,"run"`, `"version":2,"run"`},
		"an end":        {`"exited"`, `"fine"`},
		"a status":      {`"exitCode":3`, `"exitCode":-1`},
		"base64":        {`aGk=`, `aGk`},
		"not JSON":      {`{"version"`, `{version`},
		"another type":  {`"exitCode":3`, `"exitCode":"3"`},
		"a huge number": {`"omitted":7`, `"omitted":99999999999999999999`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(goodResult, change[0], change[1], 1)
			if text == goodResult {
				t.Fatal("nothing changed")
			}
			if _, _, err := decodeResult(strings.NewReader(text), "run-1", "h", 1<<20); err == nil {
				t.Error("taken")
			}
		})
	}
	long := strings.Replace(goodResult, "aGk=", strings.Repeat("QUJD", 1000), 1)
	r, streams, err = decodeResult(strings.NewReader(long), "run-1", "h", 500)
	if err != nil || len(streams[0]) != 500 || r.Stdout.Omitted < 2500 {
		t.Errorf("%d bytes, %+v, %v", len(streams[0]), r, err)
	}
}

func FuzzDecodeResult(f *testing.F) {
	f.Add([]byte(goodResult))
	f.Add([]byte(`{"version":1,"run":"run-1","codeSha256":"h","end":"failed","files":[{"path":"../x","size":-1},{"path":"a","size":9e18},{"path":"a/b"}]}`))
	f.Add([]byte(`{"version":1,"run":"run-1","codeSha256":"h","end":"failed","seconds":1e308,"gpuJoules":-5,"gpus":["` + "\x1b[2J" + `"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, streams, err := decodeResult(bytes.NewReader(data), "run-1", "h", 1000)
		if err != nil {
			return
		}
		b := r.batchResult(streams, &handle{})
		if len(b.Stdout) > 1100 || len(b.Stderr) > 1100 || b.Ran < 0 || b.Truncated.Stdout < 0 || len(b.Notes) > maxNotes+5 {
			t.Fatalf("%+v", b)
		}
		if b.End == batch.Exited && (b.ExitCode < 0 || b.ExitCode > 255) {
			t.Fatalf("%+v", b)
		}
		if u := b.Usage; u != nil && (u.CPU < 0 || u.PeakBytes < 0 || !(u.GPUJoules >= 0) || math.IsInf(u.GPUJoules, 0)) {
			t.Fatalf("%+v", u)
		}
		for _, n := range append(b.Notes, b.Error) {
			if strings.ContainsAny(n, "\x1b\n\x00") {
				t.Fatalf("%q", n)
			}
		}
		files, _, _ := choose(r.Files, 1<<20)
		var total int64
		for _, f := range files {
			if !filepath.IsLocal(f.path) || strings.Contains(f.path, "..") && filepath.Clean(f.path) != f.path || f.size < 0 || isOurs(f.path) {
				t.Fatalf("%+v", f)
			}
			total += f.size
		}
		if total > 1<<20 {
			t.Fatalf("%d bytes", total)
		}
	})
}

func FuzzLogs(f *testing.F) {
	f.Add("data: {\"stream_name\":\"stdout\",\"time\":1.5,\"data\":\"hi\\n\"}\n\ndata: END_OF_LOG\n\n")
	f.Add("[{\"stream_name\":\"stderr\",\"time\":1,\"data\":\"[sallyport run-1] the code begins\\nx\"}\n,{\"stream_name\":\"stdout\",\"data\":\"y\"}\n]")
	f.Fuzz(func(t *testing.T, text string) {
		split := newSplitter("run-1")
		n := 0
		count := func(e logEvent) {
			stdout, stderr := split.take(e)
			n += len(stdout) + len(stderr)
		}
		_ = readEvents(strings.NewReader(text), count)
		for _, e := range decodeLog(text) {
			count(e)
		}
		if n > 3*len(text) { // U+FFFD in the place of a byte
			t.Fatalf("%d bytes of %d", n, len(text))
		}
	})
}

// endless is a log that says nothing, for ever.
type endless struct{ line []byte }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.line), nil }

func TestLogsWithoutEnd(t *testing.T) {
	nothing := func(logEvent) {}
	for name, c := range map[string]struct {
		log  io.Reader
		want error
	}{
		"many lines":   {endless{bytes.Repeat([]byte(": still here\n"), 1000)}, errTooLarge},
		"one line":     {endless{bytes.Repeat([]byte("x"), 1<<16)}, errTooLarge},
		"a broken one": {strings.NewReader("data: {}\n\ndata: {"), io.ErrUnexpectedEOF},
		"a whole one":  {strings.NewReader("data: {}\n\ndata: END_OF_LOG\n\n"), nil},
	} {
		if err := readEvents(c.log, nothing); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestSplitter(t *testing.T) {
	s := newSplitter("run-1")
	var stdout, stderr string
	for _, e := range []logEvent{
		{"stdout", 0, "Kaggle's own\n"}, {"stdout", 0, "[sallyport run-1] the code begins\n"}, {"stderr", 0, "noise\n[sallyport run-1] the code begins\nerr 1\n"}, {"stdout", 1, "out 1\n"},
		{"stderr", 1, "[sallyport run-2] the code has ended\n"}, {"stderr", 2, "err 2\n[sallyport run-1] the code has ended\nnoise\n"}, {"stdout", 2, "out 2\n"}, {"stdout", 3, "[sallyport run-1] the code has ended\n"}, {"stdout", 3, "late\n"}, {"stderr", 3, "[NbConvertApp] noise\n"},
	} {
		a, b := s.take(e)
		stdout, stderr = stdout+a, stderr+b
	}
	if stdout != "out 1\nout 2\n" || stderr != "err 1\n[sallyport run-2] the code has ended\nerr 2\n" {
		t.Errorf("%q, %q", stdout, stderr)
	}
}

func TestChoose(t *testing.T) {
	files := []wireFile{
		{Path: "in", Size: 5, Input: true}, {Path: "a/b", Size: 10}, {Path: "a/b", Size: 1}, {Path: "a", Size: 1}, {Path: "a/b/c", Size: 1},
		{Path: "../x", Size: 1}, {Path: "/etc/passwd", Size: 1}, {Path: "x/../y", Size: 1}, {Path: "", Size: 1}, {Path: "nul\x00", Size: 1},
		{Path: resultFile, Size: 1}, {Path: "neg", Size: -1}, {Path: "big", Size: 1000}, {Path: `c:\x`, Size: 1}, {Path: "good", Size: 80},
	}
	got, left, bytes := choose(files, 100)
	if len(got) != 2 || got[0].path != "a/b" || got[1].path != "good" || left != 12-0 || bytes != 1000 {
		t.Errorf("%+v, %d, %d", got, left, bytes)
	}
}

func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		h.Mode = 0o600
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExtract(t *testing.T) {
	zeros := sha256.Sum256(make([]byte, 3))
	wanted := map[string]wantedFile{"d/x": {path: "d/x", size: 3, sha256: hex.EncodeToString(zeros[:]), packed: true}}
	reg := byte(tar.TypeReg)
	for name, tt := range map[string]struct {
		data []byte
		ok   bool
	}{
		"good":             {archive(t, tar.Header{Name: "d/x", Size: 3, Typeflag: reg}), true},
		"with others":      {archive(t, tar.Header{Name: "../evil", Size: 3, Typeflag: reg}, tar.Header{Name: "d", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, tar.Header{Name: "d/x", Size: 3, Typeflag: reg}, tar.Header{Name: "d/x", Size: 9, Typeflag: reg}), true},
		"another size":     {archive(t, tar.Header{Name: "d/x", Size: 4, Typeflag: reg}), false},
		"missing":          {archive(t), false},
		"a link in place":  {archive(t, tar.Header{Name: "d/x", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), false},
		"a bomb before it": {archive(t, tar.Header{Name: "bomb", Size: 8 << 20, Typeflag: reg}, tar.Header{Name: "d/x", Size: 3, Typeflag: reg}), false},
		"no archive":       {[]byte("hello"), false},
	} {
		t.Run(name, func(t *testing.T) {
			place := t.TempDir()
			root, err := os.OpenRoot(place)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			got, err := extract(root, bytes.NewReader(tt.data), wanted)
			if (err == nil) != tt.ok || tt.ok && len(got) != 1 {
				t.Errorf("%v, %v", got, err)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(place), "evil")); err == nil {
				t.Error("it wrote beside the directory")
			}
		})
	}
}

func TestFilesThatComeBack(t *testing.T) {
	w := newWorld(t, false)
	w.opts.MaxOutput = 4 << 20
	b := w.engine()
	r := w.start(b, w.spec(`import os
for i in range(260):
    os.makedirs("many/%d" % (i % 7), exist_ok=True)
    open("many/%d/%d.txt" % (i % 7, i), "w").write(str(i) * 50)
open("too large", "wb").truncate(8 << 20)
open("exact.bin", "wb").write(os.urandom(1500000))
os.symlink("/etc/passwd", "link")
`))
	got := w.result(r)
	if got.End != "" || got.ExitCode != 0 {
		t.Fatalf("%+v %s", got, got.Stderr)
	}
	notes := strings.Join(got.Notes, "\n")
	if !strings.Contains(notes, "1 files (8 MB) do not come back") || !strings.Contains(notes, "no plain files") {
		t.Errorf("%s", notes)
	}
	// Half a file that looks whole, and one that breaks off.
	w.service.Inject(kaggletest.Fault{Call: "storage", Kernel: "exact.bin", Kind: kaggletest.Short})
	w.service.Inject(kaggletest.Fault{Call: "storage", Kernel: archiveFile, Kind: kaggletest.Truncate, Times: 2})
	w.service.Inject(kaggletest.Fault{Call: "storage", Kernel: manifestFile, Kind: kaggletest.Redirect, To: w.service.StorageURL() + "/elsewhere"})
	files := w.fetched(r)
	if len(files) != 262 || len(files["exact.bin"]) != 1500000 || files["many/0/7.txt"] != strings.Repeat("7", 50) || files[archiveFile] != "" {
		t.Errorf("%d files", len(files))
	}
	// What is at Kaggle alone stays there.
	if err := r.Destroy(context.Background()); err != nil || len(w.service.Kernels()) != 1 {
		t.Errorf("%v, %d kernels", err, len(w.service.Kernels()))
	}
	w.noSecrets()
}

// Files that the bootstrap could not list are not deleted with the script.
func TestFilesThatAreNotListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	b := w.engine()
	// What is listed is a directory that is not there any more.
	r := w.start(b, w.spec("import os\nopen('kept', 'w').write('x')\nos.makedirs('sallyport-manifest.json.part')"))
	got := w.result(r)
	if got.End != "" || got.ExitCode != 0 || !strings.Contains(strings.Join(got.Notes, "\n"), "could not be listed") {
		t.Fatalf("%+v", got)
	}
	w.fetched(r)
	if err := r.Destroy(context.Background()); err != nil || len(w.service.Kernels()) != 1 {
		t.Errorf("%v, %d kernels", err, len(w.service.Kernels()))
	}
}

// A mark of the encoding before the code is none of it, as in a file that Python
// runs itself.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	b := w.engine()
	if got := w.result(w.start(b, w.spec("\ufeffprint(1)"))); got.ExitCode != 0 || string(got.Stdout) != "1\n" {
		t.Errorf("%+v %s", got, got.Stderr)
	}
}

func TestASessionThatLeavesNoResult(t *testing.T) {
	w := newWorld(t, false)
	b := w.engine()
	// Straight into the session's log: the supervisor has no time to pass it on.
	code := "import os, signal\nopen('/proc/%d/fd/1' % os.getppid(), 'w').write('before\\n')\nos.kill(os.getppid(), signal.SIGKILL)"
	got := w.result(w.start(b, w.spec(code)))
	if got.End != batch.Failed || string(got.Stdout) != "before\n" || !strings.Contains(got.Error, "crashed") {
		t.Errorf("%+v, %q", got, got.Stdout)
	}
	forged := `import os, sys, json, time, signal
open("sallyport-result.json", "w").write(json.dumps({"version": 1, "run": "run-another", "end": "exited", "exitCode": 0}))
os.kill(os.getppid(), signal.SIGKILL)`
	got = w.result(w.start(b, w.spec(forged)))
	if got.End != batch.Failed || !strings.Contains(got.Error, "another run") {
		t.Errorf("%+v", got)
	}
	spec := w.spec("import time; time.sleep(60)")
	r := w.start(b, spec)
	r.mu.Lock()
	r.h.Until = r.h.NotAfter.Add(time.Minute) // so that the log's end is at the limit
	r.mu.Unlock()
	w.service.StopSessions()
	if got = w.result(r); got.End != batch.Cancelled && got.End != batch.TimedOut {
		t.Errorf("%+v", got)
	}
}

func TestMuchOutput(t *testing.T) {
	w := newWorld(t, false)
	spec := w.spec("import sys, os\nfor _ in range(6000): os.write(1, b'x' * 999 + b'\\n')\nfor _ in range(100): os.write(2, b'\\n' * 10000)\nimport helper\nsys.exit(helper.answer)")
	spec.Files = []sandbox.File{{Path: "helper.py", Data: []byte("answer = 9")}}
	r := w.start(w.engine(), spec)
	got := w.result(r)
	if got.ExitCode != 9 || got.Truncated.Stdout != 6_000_000-1<<20 || got.Truncated.Stderr != 0 || len(got.Stderr) != 1_000_000 {
		t.Errorf("%d, %+v, %d", got.ExitCode, got.Truncated, len(got.Stderr))
	}
	if !bytes.HasSuffix(got.Stdout, []byte("xx\n")) || !bytes.Contains(got.Stdout, []byte("\n[4951424 bytes left out]\n")) {
		t.Errorf("%d bytes", len(got.Stdout))
	}
	l, err := r.backend.list(context.Background(), r.about())
	if err != nil || len(l.log) > 16<<20 {
		t.Errorf("a log of %d bytes, %v", len(l.log), err)
	}
	if files := w.fetched(r); len(files) != 1 {
		t.Errorf("%d files beside the manifest", len(files)-1)
	}
}

func TestDatasets(t *testing.T) {
	w := newWorld(t, false)
	b := w.engine()
	spec := w.spec("print(open('../input/iris/data.csv').read())")
	spec.Datasets = []string{"uciml/iris"}
	if got := w.result(w.start(b, spec)); got.ExitCode != 0 || string(got.Stdout) != "a,b\n1,2\n\n" {
		t.Errorf("%+v %s", got, got.Stderr)
	}
	spec = w.spec("print('ran')")
	spec.Datasets = []string{"uciml/missing-one"}
	got := w.result(w.start(b, spec))
	if got.End != batch.Failed || !strings.Contains(got.Error, "missing-one") || len(got.Stdout) != 0 || !strings.Contains(strings.Join(got.Notes, "\n"), "does not have") {
		t.Errorf("%+v", got)
	}
}

func TestKeepAndDeleted(t *testing.T) {
	w := newWorld(t, false)
	b := w.engine()
	spec := w.spec("print(1)")
	spec.Keep = true
	r := w.start(b, spec)
	got := w.result(r)
	if err := r.Destroy(context.Background()); err != nil || len(w.service.Kernels()) != 1 || !strings.Contains(strings.Join(got.Notes, "\n"), "kept at https://www.kaggle.com/code/ada/") {
		t.Errorf("%v, %+v", err, got.Notes)
	}
	if err := b.remove(context.Background(), testUser, r.now().Slug); err != nil {
		t.Fatal(err)
	}
	again, err := b.Attach(context.Background(), r.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if got := w.result(again.(*run)); got.End != batch.Lost {
		t.Errorf("%+v", got)
	}
	if err := again.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	w := newWorld(t, true)
	b := w.engine()
	for name, tt := range map[string]struct {
		change func(*batch.Job)
		kind   error
	}{
		"no code":     {func(s *batch.Job) { s.Code = "" }, sandbox.ErrInvalidSpec},
		"not UTF-8":   {func(s *batch.Job) { s.Code = "\xff" }, sandbox.ErrInvalidSpec},
		"a long ID":   {func(s *batch.Job) { s.ID = strings.Repeat("x", 40) }, sandbox.ErrInvalidSpec},
		"a long time": {func(s *batch.Job) { s.Timeout = 12 * time.Hour }, sandbox.ErrUnsupported},
		"a long TPU":  {func(s *batch.Job) { s.Timeout, s.Accelerator = 10*time.Hour, "tpu" }, sandbox.ErrUnsupported},
		"accelerator": {func(s *batch.Job) { s.Accelerator = "warp" }, sandbox.ErrInvalidSpec},
		"a dataset":   {func(s *batch.Job) { s.Datasets = []string{"../x"} }, sandbox.ErrInvalidSpec},
		"isolation":   {func(s *batch.Job) { s.MinIsolation = sandbox.KernelIsolation }, sandbox.ErrUnsupported},
		"a limit": {func(s *batch.Job) {
			s.Require = map[sandbox.Resource]sandbox.Enforcement{sandbox.OpenFiles: sandbox.Soft}
		}, sandbox.ErrUnsupported},
		"our file":          {func(s *batch.Job) { s.Files = []sandbox.File{{Path: resultFile}} }, sandbox.ErrInvalidSpec},
		"a large file":      {func(s *batch.Job) { s.Files = []sandbox.File{{Path: "x", Data: noise(t, 2<<20)}} }, sandbox.ErrInvalidSpec},
		"a cancelled start": {nil, sandbox.ErrStart},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			spec := w.spec("print(1)")
			if tt.change != nil {
				tt.change(spec)
			} else {
				cancel()
			}
			if _, err := b.Submit(ctx, spec); !errors.Is(err, tt.kind) {
				t.Errorf("%v", err)
			}
		})
	}
	if n := w.service.Calls("SaveKernel"); n != 0 {
		t.Errorf("%d pushes", n)
	}
	for _, opts := range []func(*Options){
		func(o *Options) { o.URL = "http://api.kaggle.com" }, func(o *Options) { o.Instance = "A" }, func(o *Options) { o.Accelerator = "warp" }, func(o *Options) { o.Log = nil },
	} {
		o := w.opts
		opts(&o)
		if _, err := New(o); err == nil {
			t.Errorf("made: %+v", o)
		}
	}
}

// noise is data that does not compress.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d", i))
		b.Write(sum[:])
	}
	return b.Bytes()[:n]
}

func TestAccelerators(t *testing.T) {
	for word, want := range map[string]string{
		"": "", "none": "", "CPU": "", "gpu": "NvidiaTeslaT4", "GPU": "NvidiaTeslaT4", "tpu": "TpuV5E8", "nvidial4": "NvidiaL4", "NvidiaB200": "NvidiaB200", "TpuV7E8": "TpuV7E8",
	} {
		if got, note, err := accelerator(word, ""); got != want || note != "" || err != nil {
			t.Errorf("%q: %q, %q, %v", word, got, note, err)
		}
	}
	if got, note, err := accelerator("NvidiaTeslaP100", ""); got != "NvidiaTeslaP100" || !strings.Contains(note, "NvidiaTeslaT4") || err != nil {
		t.Errorf("%q, %q, %v", got, note, err)
	}
	if got, _, err := accelerator("", "gpu"); got != shapeGPU || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	w := newWorld(t, true)
	b := w.engine()
	spec := w.spec("print(1)")
	spec.Accelerator, spec.Internet = "gpu", true
	w.start(b, spec)
	for _, e := range w.service.Journal() {
		if e.Call != "SaveKernel" {
			continue
		}
		var sent map[string]any
		if err := json.Unmarshal(e.Body, &sent); err != nil {
			t.Fatal(err)
		}
		if sent["machineShape"] != shapeGPU || sent["enableGpu"] != true || sent["enableTpu"] != false || sent["enableInternet"] != true || sent["isPrivate"] != true || sent["sessionTimeoutSeconds"] != 660.0 {
			t.Errorf("%v", sent)
		}
	}
}

// TestDamagedResult: a result file that cannot be read is asked for again, and
// where it never can be, the run is not removed.
func TestDamagedResult(t *testing.T) {
	w := newWorld(t, false)
	w.service.Inject(kaggletest.Fault{Call: "storage", Kernel: resultFile, Kind: kaggletest.Short, Times: 2})
	if got := w.result(w.start(w.engine(), w.spec("print('whole')"))); got.End != batch.Exited || string(got.Stdout) != "whole\n" {
		t.Errorf("got %+v, want the result", got)
	}
	w.service.Inject(kaggletest.Fault{Call: "storage", Kernel: resultFile, Kind: kaggletest.Short, Times: -1})
	r := w.start(w.engine(), w.spec("print('never')"))
	got := w.result(r)
	if err := r.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if got.End != batch.Failed || !strings.Contains(strings.Join(got.Notes, "\n"), "stays at") || len(w.service.Kernels()) == 0 {
		t.Errorf("got %+v, and %d scripts are left; want a failure, and the script", got, len(w.service.Kernels()))
	}
}
