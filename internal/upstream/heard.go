package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Progress is a server's report on a call in progress.
type Progress struct {
	Progress float64
	Total    float64 // 0: unknown
	Message  string
}

// Bounds of what a server tells during a call, in bytes.
const (
	maxProgressMessage = 4 << 10
	maxLogText         = 4 << 10
	maxLogger          = 128
	// maxHeard is how much of it is looked at.
	maxHeard = 64 << 10
)

// told returns what a server said as its caller may read it: on one line, without
// secrets and control characters, and bounded.
func told(def Definition, text string, most int) string {
	text = def.Redact(strings.ToValidUTF8(text[:min(len(text), maxHeard)], ""))
	text = printable(strings.ReplaceAll(text, "\n", " "))
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// progressListeners are the calls that want progress reports.
type progressListeners struct {
	mu   sync.Mutex
	last int64
	by   map[int64]func(Progress)
}

// listen returns the token for a request, and a function that removes it.
func (l *progressListeners) listen(f func(Progress)) (token int64, forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[int64]func(Progress){}
	}
	l.last++
	token = l.last
	l.by[token] = f
	return token, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.by, token)
	}
}

// tell delivers a notification. It holds the lock meanwhile, so that nothing
// arrives after forget.
func (l *progressListeners) tell(params json.RawMessage) {
	var p struct {
		ProgressToken json.RawMessage `json:"progressToken"`
		Progress      float64         `json:"progress"`
		Total         float64         `json:"total"`
		Message       string          `json:"message"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	token, err := strconv.ParseInt(strings.Trim(string(p.ProgressToken), `"`), 10, 64) // some servers send 7 as "7"
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.by[token]; f != nil {
		f(Progress{Progress: p.Progress, Total: p.Total, Message: p.Message})
	}
}

// levels are those of log messages, as the protocol has them.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// logged hands a log message to the client whose calls are in flight, unless there
// are several.
func (s *Server) logged(params json.RawMessage) {
	about, err := s.doing.meant(context.Background())
	if err != nil {
		return
	}
	var m struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	if json.Unmarshal(params, &m) != nil || !slices.Contains(levels, m.Level) {
		return
	}
	var text string
	if json.Unmarshal(m.Data, &text) != nil {
		text = string(m.Data)
	}
	d := about[len(about)-1]
	d.host.Log(Message{Level: m.Level, Logger: told(d.server.def, m.Logger, maxLogger), Text: told(d.server.def, text, maxLogText)})
}
