//go:build unix

package broker

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/upstream"
)

// talkative are servers that tell about their calls.
type talkative struct{ servers }

func (talkative) Open(context.Context, string) (bridge.Server, error) { return talker{}, nil }

type talker struct{ mathServer }

func (talker) CallTool(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	h := upstream.HostOf(ctx)
	h.Progress(upstream.Progress{Progress: 3, Total: 10, Message: "indexing"})
	h.Log(upstream.Message{Level: "warning", Logger: "db", Text: "slow"})
	return mathServer{}.CallTool(ctx, tool, arguments)
}

// TestServersTellTheLog: what servers tell about calls is in the session's log, and
// neither in the result nor in what code reads of earlier output.
func TestServersTellTheLog(t *testing.T) {
	logs := t.TempDir()
	b, _ := newBroker(t, func(p *parts) {
		p.servers = talkative{}
		p.sessions.Logs, p.sessions.LogBytes = logs, 1<<20
	})
	r := run(t, b, "print(await mcp_math.add(a=1, b=2))", "math")
	again := run(t, b, "print(runtime.output(1))") // it has the log written
	for _, got := range []*Result{r, again} {
		if all := strings.Join(slices.Concat(got.Stdout, got.Stderr, got.Notes), "\n"); got.Status != Success || !strings.Contains(all, "3") || strings.Contains(all, "indexing") || strings.Contains(all, "slow") {
			t.Errorf("got %+v, want 3, and nothing that the server told", got)
		}
	}
	var told []string
	err := filepath.WalkDir(logs, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		r := sessionlog.ReadOutput(path)
		defer r.Close()
		return r.Read(func(e sessionlog.Entry) error {
			if e.Told != "" {
				told = append(told, e.Server+": "+e.Told)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"math: progress: 3 of 10, indexing", "math: warning: db: slow"}; !slices.Equal(told, want) {
		t.Errorf("got %q in the log, want %q", told, want)
	}
}
