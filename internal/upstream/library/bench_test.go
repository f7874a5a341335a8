package library

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// BenchmarkCurrent is what an execution pays for definitions that are live:
// within the calm after a look nearly nothing, else a look at every file.
func BenchmarkCurrent(b *testing.B) {
	home := b.TempDir()
	if err := os.MkdirAll(home+"/MCPs", 0o755); err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		path := fmt.Sprintf("%s/MCPs/%d.json", home, i)
		if err := os.WriteFile(path, []byte(fmt.Sprintf(`{"mcpServers": {"s%d": {"command": "c"}}}`, i)), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	l := New(Config{Places: definitions.Places{OS: "linux", Home: home, Dir: b.TempDir()}, Names: []string{"*"}, State: store.At(b.TempDir())})
	defer l.Close()
	for deadline := time.Now().Add(10 * settles); time.Now().Before(deadline); {
		l.Current(true) // until the files are old enough to be relied on
	}
	b.Run("calm", func(b *testing.B) {
		for b.Loop() {
			l.Current(false)
		}
	})
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			l.Current(true)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			l.loading.Lock()
			l.reload()
			l.loading.Unlock()
		}
	})
	b.ReportMetric(float64(len(l.Snapshot().watched)), "watched")
}
