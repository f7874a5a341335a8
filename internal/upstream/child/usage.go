package child

import "time"

// Used is what the program and the processes that it has started have used: of
// processor time since its start, and of memory now. Negative is unknown, and
// ok is false where nothing is known before the program has ended. A process
// that has left the program's session is not counted.
func (p *Process) Used() (cpu time.Duration, bytes int64, ok bool) {
	select {
	case <-p.exited:
		return p.state.UserTime() + p.state.SystemTime(), -1, true
	default:
	}
	u, ok := p.running()
	return u.cpu, u.bytes, ok
}
