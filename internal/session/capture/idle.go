package capture

import "sync"

// Idle keeps the end of what a sandbox writes between executions. The zero
// value is ready for use. It is safe for concurrent use.
type Idle struct {
	mu      sync.Mutex
	data    []byte
	omitted int64
}

// maxIdle is how much idle output is kept for the next result's note.
const maxIdle = 2 << 10

// Write records p, which the caller may reuse.
func (i *Idle) Write(p []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if drop := len(p) - maxIdle; drop > 0 {
		i.omitted += int64(drop)
		p = p[drop:]
	}
	i.data = append(i.data, p...)
	if drop := len(i.data) - maxIdle; drop > 0 {
		i.omitted += int64(drop)
		i.data = append(i.data[:0], i.data[drop:]...)
	}
}

// Take returns the output since the last Take, and how many bytes before it
// were dropped.
func (i *Idle) Take() (text string, omitted int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.data) == 0 {
		return "", 0
	}
	kept, omitted := i.data, i.omitted
	if omitted > 0 {
		kept = trimStart(kept)
	}
	text = decode(kept)
	i.data, i.omitted = i.data[:0], 0
	return text, omitted
}
