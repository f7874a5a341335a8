package catalog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// logTo is a logger for one test.
func logTo(b *strings.Builder) *slog.Logger {
	return slog.New(slog.NewTextHandler(&locked{b: b}, nil))
}

type locked struct {
	mu sync.Mutex
	b  *strings.Builder
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestBound(t *testing.T) {
	schema := func(n int) json.RawMessage {
		return json.RawMessage(`{"description":"` + strings.Repeat("x", n) + `"}`)
	}
	t.Run("aliases of an earlier release", func(t *testing.T) {
		l := &Listing{Tools: []tool.Tool{{Name: "delete-all", Alias: "delete_all"}, {Name: "delete_all", Alias: "delete_all_2"}}}
		l.bound()
		if a, b := l.Tools[0].Alias, l.Tools[1].Alias; a != "delete_all" || b != "delete_all" {
			t.Errorf("got %s and %s, want those of the names", a, b)
		}
	})
	t.Run("tools", func(t *testing.T) {
		l := &Listing{}
		for i := range maxTools + 7 {
			l.Tools = append(l.Tools, tool.Tool{Name: fmt.Sprint(i)})
		}
		l.bound()
		if len(l.Tools) != maxTools || l.LeftOut != 7 {
			t.Errorf("%d tools, %d left out", len(l.Tools), l.LeftOut)
		}
		l.bound()
		if len(l.Tools) != maxTools || l.LeftOut != 7 {
			t.Errorf("again: %d tools, %d left out", len(l.Tools), l.LeftOut)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		l := &Listing{}
		for i := range 100 {
			l.Tools = append(l.Tools, tool.Tool{Name: fmt.Sprint(i), InputSchema: schema(100 << 10)})
		}
		l.bound()
		if n := len(l.Tools); n < 35 || n > 41 || n+l.LeftOut != 100 {
			t.Errorf("%d tools, %d left out", n, l.LeftOut)
		}
	})
	t.Run("one large tool", func(t *testing.T) {
		l := &Listing{Tools: []tool.Tool{
			{Name: "a", Description: strings.Repeat("é", 1<<20), InputSchema: schema(3 << 20)}, {Name: "b"},
		}}
		l.bound()
		if len(l.Tools) != 2 || l.Tools[0].InputSchema != nil || len(l.Tools[0].Description) > maxToolBytes || !utf8.ValidString(l.Tools[0].Description) {
			t.Errorf("%d tools, the first with %d bytes", len(l.Tools), len(l.Tools[0].Description))
		}
	})
	t.Run("names", func(t *testing.T) {
		l := &Listing{About: "Does things.\nMore.", Version: strings.Repeat("1", 1000)}
		for i := range maxNames + 1 {
			l.Resources = append(l.Resources, Item{Name: fmt.Sprint(i), URI: strings.Repeat("u", 3000)})
			l.Prompts = append(l.Prompts, Item{Name: fmt.Sprint(i)})
		}
		l.bound()
		if len(l.Prompts) != maxNames || len(l.Resources) == 0 || l.LeftOut != 1+maxNames+1-len(l.Resources) || l.About != "Does things" || len(l.Version) > 110 {
			t.Errorf("%d resources, %d prompts, %d left out, %q", len(l.Resources), len(l.Prompts), l.LeftOut, l.About)
		}
	})
}
