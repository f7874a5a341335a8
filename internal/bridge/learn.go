package bridge

import (
	"encoding/json"
	"sync/atomic"

	"github.com/sallyport/sallyport/internal/toolbox/shape"
)

// How often the results of a tool are looked at: the first ones, then seldom.
const (
	firstLessons = 8
	lessonEvery  = 256
)

// lesson counts the results of a tool without an output schema.
type lesson struct {
	form    string // catalog.FormOf the tool
	results atomic.Int64
}

// learn adds the shape of a result to the catalog, if the tool does not declare
// what it returns. Most calls only count.
func (b *Bridge) learn(server, tool string, result json.RawMessage) {
	b.mu.Lock()
	var l *lesson
	if d := b.cache[server]; d != nil {
		l = d.lessons[tool]
	}
	b.mu.Unlock()
	if l == nil {
		return
	}
	if n := l.results.Add(1); n <= firstLessons || n%lessonEvery == 0 {
		b.catalog.LearnShape(server, tool, l.form, shape.Of(result))
	}
}
