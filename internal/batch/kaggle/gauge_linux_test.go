package kaggle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
)

// withEnv makes a world whose sessions have these variables.
func withEnv(t *testing.T, env ...string) *world {
	t.Helper()
	w := newWorld(t, false)
	service := kaggletest.New(kaggletest.Options{
		Python: hostPython(), Dir: t.TempDir(), Env: env, Accounts: map[string]*kaggletest.Account{testUser: w.account},
	})
	t.Cleanup(service.Close)
	w.service, w.opts.URL = service, service.URL()
	return w
}

// aBitOver runs for a little over a second.
const aBitOver = "import time; time.sleep(1.1)"

func TestGPUThroughNvidiaSMI(t *testing.T) {
	t.Parallel() // mostly waiting
	dir := t.TempDir()
	script := `#!/bin/sh
case "$*" in
*-lms*) while :; do echo 60.5; echo 39.5; sleep 0.1; done ;;
*query-gpu=name*) echo "Tesla T4"; echo "Tesla T4" ;;
*) exit 1 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w := withEnv(t, "PATH="+dir+":/usr/bin:/bin")
	spec := w.spec(aBitOver)
	spec.Accelerator = "gpu"
	got := w.result(w.start(w.engine(), spec))
	u := got.Usage
	if got.ExitCode != 0 || u == nil || u.GPUs != 2 || u.GPUModel != "Tesla T4" {
		t.Fatalf("%+v, %+v", got, u)
	}
	// 100 W, for as long as it was sampled; on a busy machine that is longer
	// than the program ran.
	if u.GPUJoules < 100 || u.GPUJoules > 100*(got.Ran.Seconds()+30) {
		t.Errorf("%.1f J in %s", u.GPUJoules, got.Ran)
	}
	if notes := strings.Join(got.Notes, "\n"); !strings.Contains(notes, "nvidia-smi-power") || !strings.Contains(notes, "with 2 × Tesla T4") {
		t.Errorf("%s", notes)
	}
	// The sampler's own time is not the program's.
	if u.CPU > got.Ran/2 {
		t.Errorf("%s of processor time for a program that sleeps", u.CPU)
	}
}

// driver is NVIDIA's library as the bootstrap uses it: one GPU that counts
// 2000 mJ with each question.
const driver = `
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)0x1234567890ab; return i; }
int nvmlDeviceGetName(void *d, char *name, unsigned n) { const char *s = "NVIDIA L4"; while ((*name++ = *s++)) ; return d != (void *)0x1234567890ab; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj) { static unsigned long long e = 1000000; *mj = e += 2000; return COUNTS; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 50000; return 0; }
`

func TestGPUThroughItsDriver(t *testing.T) {
	t.Parallel() // mostly waiting
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	for name, tt := range map[string]struct {
		counts, method string
		least, most    float64
	}{
		"counter": {"0", "nvml-energy", 2, 2},
		"power":   {"3", "nvml-power", 20, 1e4}, // one that does not count: 50 W, sampled
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source := filepath.Join(dir, "nvml.c")
			if err := os.WriteFile(source, []byte(strings.Replace(driver, "COUNTS", tt.counts, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), source).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w := withEnv(t, "LD_LIBRARY_PATH="+dir)
			got := w.result(w.start(w.engine(), w.spec(aBitOver)))
			if u := got.Usage; u == nil || u.GPUModel != "NVIDIA L4" || u.GPUJoules < tt.least || u.GPUJoules > tt.most || !strings.Contains(strings.Join(got.Notes, "\n"), tt.method) {
				t.Errorf("%+v, %v", u, got.Notes)
			}
		})
	}
}

func TestWhatIsMeasured(t *testing.T) {
	w := newWorld(t, false)
	// An orphan uses a processor after its parent has ended, and counts.
	got := w.result(w.start(w.engine(), w.spec(`import os, subprocess, sys, time
orphan = """import os, time
while time.process_time() < 0.6: pass
open('done', 'w').close()
time.sleep(600)"""
subprocess.run([sys.executable, "-c", "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)", orphan], check=True)
ballast = bytearray(b"x") * (80 << 20)
while time.process_time() < 0.4: pass
while not os.path.exists("done"): time.sleep(0.05)
`)))
	if got.ExitCode != 0 {
		t.Fatalf("%+v %s", got, got.Stderr)
	}
	if u := got.Usage; u.CPU.Seconds() < 0.95 || u.PeakBytes < 80<<20 || u.PeakBytes > 1<<30 {
		t.Errorf("%+v", u)
	}
}

// TestMeanMemory: memory that was held for a part of the time is not charged
// for all of it.
func TestMeanMemory(t *testing.T) {
	w := newWorld(t, false)
	got := w.result(w.start(w.engine(), w.spec("import time\ntime.sleep(2)\nballast = bytearray(b'x') * (300 << 20)\ntime.sleep(0.6)")))
	if u := got.Usage; u == nil || u.PeakBytes < 300<<20 || u.MeanBytes <= 0 || u.MeanBytes > u.PeakBytes*3/4 {
		t.Errorf("got %+v, want a mean well below the peak", u)
	}
}

func TestTooManyProcesses(t *testing.T) {
	w := newWorld(t, false)
	// The bound is lowered in the bootstrap's own text: thousands are no test.
	b := w.engine()
	spec := w.spec("import subprocess, time\nkeep = [subprocess.Popen(['sleep', '600']) for _ in range(40)]\ntime.sleep(600)")
	gauge := strings.Replace(gaugeSource, "MOST = 4096", "MOST = 30", 1)
	if gauge == gaugeSource {
		t.Fatal("the bound is elsewhere")
	}
	b.modules["gauge"] = gauge
	got := w.result(w.start(b, spec))
	if got.End != batch.Failed || !strings.Contains(got.Error, "more than 30 processes") {
		t.Errorf("%+v", got)
	}
}
