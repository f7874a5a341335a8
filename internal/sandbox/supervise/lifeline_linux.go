package supervise

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lifeline is the helper's end of its lifeline.
type Lifeline struct {
	in  *json.Decoder
	mu  sync.Mutex // held while an event is written
	out *json.Encoder

	answering sync.Mutex // held from the start of a command to its answer
}

// OpenLifeline opens the lifeline of this process, a helper, and reads the
// configuration into cfg.
func OpenLifeline(cfg any) (*Lifeline, error) {
	f := os.NewFile(LifelineFD, "lifeline")
	unix.CloseOnExec(LifelineFD)
	l := &Lifeline{in: json.NewDecoder(f), out: json.NewEncoder(f)}
	return l, l.in.Decode(cfg)
}

// Send sends an event. A lifeline that is closed is noticed by Serve.
func (l *Lifeline) Send(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Encode(e)
}

// answerTime bounds the wait of Finish for a command. Only one that hangs needs it.
const answerTime = killTime

// Finish sends the last event, after the answer to a command that is being carried
// out: a snapshot may end what this process waits for before it is answered. Serve
// answers nothing afterwards.
func (l *Lifeline) Finish(e Event) {
	answered := make(chan struct{})
	go func() {
		l.answering.Lock()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(answerTime):
	}
	l.Send(e)
}

// Next reads the next command.
func (l *Lifeline) Next() (cmd Command, err error) {
	err = l.in.Decode(&cmd)
	return cmd, err
}

// Serve carries out commands with do and answers them until the lifeline closes.
func (l *Lifeline) Serve(do func(Command) (*Usage, error)) {
	for {
		cmd, err := l.Next()
		if err != nil {
			return
		}
		l.answering.Lock()
		reply := Event{Kind: EventReply, ID: cmd.ID}
		if reply.Usage, err = do(cmd); err != nil {
			reply.Error = err.Error()
		}
		l.Send(reply)
		l.answering.Unlock()
	}
}
