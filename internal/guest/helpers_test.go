package guest

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// never answers no call before its execution ends.
func never(ctx context.Context, _ wire.Call) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// answer answers every call.
func answer(context.Context, wire.Call) (json.RawMessage, error) {
	return json.RawMessage(`"answer"`), nil
}
