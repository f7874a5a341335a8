package runpod

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/batchtest"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
	"github.com/sallyport/sallyport/internal/store"
)

// TestSuite is the suite of all batch services. The worker runs the jobs with a
// Python of this machine.
func TestSuite(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	f := &fixture{t: t, fake: runpodtest.New(runpodtest.Options{Endpoints: []string{endpoint}}), state: store.At(t.TempDir()), log: &lockedWriter{}}
	f.ctx, f.stop = context.WithCancel(t.Context())
	t.Cleanup(f.stop)
	f.work("w1", &speaker{report: strong(), play: func(ctx context.Context, in *job.Input, _ func(job.Chunk)) *job.Output {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, python, "-I", "-X", "utf8", "-")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in.Program()), &stdout, &stderr
		_ = cmd.Run() // its exit code tells
		return &job.Output{Stdout: stdout.String(), Stderr: stderr.String(), ReturnCode: cmd.ProcessState.ExitCode()}
	}})
	batchtest.Run(t, func(testing.TB) batch.Service { return f.backend(nil) })
}
