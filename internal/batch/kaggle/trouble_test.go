package kaggle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
)

// TestManyRunsInTrouble: whatever the network does, each run is pushed at most
// once, and has one outcome. SALLYPORT_TEST_KAGGLE_RUNS says how many there are
// (test/kaggle/run asks for many).
func TestManyRunsInTrouble(t *testing.T) {
	runs := 6
	if n, err := strconv.Atoi(os.Getenv("SALLYPORT_TEST_KAGGLE_RUNS")); err == nil {
		runs = n
	}
	w := newWorld(t, false)
	for _, f := range []kaggletest.Fault{
		{Call: "SaveKernel", Kind: kaggletest.DropAfter, Skip: 1, Every: 3},
		{Call: "SaveKernel", Kind: kaggletest.Status, Status: 429, Retry: "0", Every: 4},
		{Call: "SaveKernel", Kind: kaggletest.Status, Status: 502, Skip: 2, Every: 7},
		{Call: "GetKernelSessionStatus", Kind: kaggletest.DropBefore, Every: 3},
		{Call: "GetKernelSessionStatus", Kind: kaggletest.Status, Status: 503, Every: 7},
		{Call: "ListKernelSessionOutput", Kind: kaggletest.DropAfter, Every: 3},
		{Call: "DeleteKernel", Kind: kaggletest.DropAfter, Every: 2},
		{Call: "storage", Kind: kaggletest.Truncate, Every: 4},
		{Call: "storage", Kind: kaggletest.Short, Kernel: "left", Every: 3},
		{Call: "logs", Kind: kaggletest.Truncate, Every: 2},
	} {
		// Of few runs none can have more than its share, and be given up.
		if f.Times = 2; runs > 6 {
			f.Times = -1
		}
		w.service.Inject(f)
	}
	b := w.engine()
	tell := make(chan int, 4) // at a time
	var all sync.WaitGroup
	var mu sync.Mutex
	never := 0
	for i := range runs {
		tell <- i
		all.Go(func() {
			defer func() { <-tell }()
			spec := &batch.Job{
				ID: fmt.Sprintf("run-%d", i), Timeout: time.Minute, Queue: time.Hour, Script: true,
				Code: fmt.Sprintf("for n in range(50): print(%d, n, flush=True)\nopen('left', 'w').write('%d' * 4000)\nraise SystemExit(%d)", i, i%10, i%5),
			}
			r, err := b.Submit(context.Background(), spec)
			if err != nil {
				t.Errorf("run %d: %v", i, err)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			got, err := r.(*run).Result(ctx)
			if err != nil {
				t.Errorf("run %d: %v", i, err)
				return
			}
			if got.End == batch.Failed && strings.Contains(got.Error, "was not run") {
				mu.Lock()
				never++
				mu.Unlock()
				return
			}
			if want := fmt.Sprintf("%d 49\n", i); got.End != batch.Exited || got.ExitCode != i%5 || !strings.HasSuffix(string(got.Stdout), want) {
				t.Errorf("run %d: %+v", i, got)
			}
			place := filepath.Join(t.TempDir(), "files")
			root, err := openNew(place)
			if err != nil {
				t.Error(err)
				return
			}
			defer root.Close()
			if err := thrice(func() error { _, err := r.(*run).Fetch(ctx, root); return err }); err != nil {
				t.Errorf("run %d: %v", i, err)
				return
			}
			if data, err := root.ReadFile("left"); err != nil || string(data) != strings.Repeat(strconv.Itoa(i%10), 4000) {
				t.Errorf("run %d: %d bytes, %v", i, len(data), err)
			}
			if err := thrice(func() error { return r.Destroy(ctx) }); err != nil {
				t.Errorf("run %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := w.service.Sessions(); n != runs-never || w.service.Ghosts() != 0 || len(w.service.Kernels()) != 0 {
		t.Errorf("%d sessions of %d runs, of which %d were never begun; %d ghosts; left %+v", n, runs, never, w.service.Ghosts(), w.service.Kernels())
	}
	t.Logf("%d runs, %d of them never begun", runs, never)
	w.noSecrets()
}

// thrice tries what can be tried again after an error.
func thrice(do func() error) error {
	err := do()
	for range 2 {
		if err != nil {
			err = do()
		}
	}
	return err
}

func openNew(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}
