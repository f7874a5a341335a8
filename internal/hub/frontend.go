package hub

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/pipe"
)

// maxLine bounds one message of a client.
const maxLine = 16 << 20

// codeLost is the error code of a request that no hub could answer. It is one of
// those that JSON-RPC leaves to servers.
const codeLost = -32000

// mostSent bounds how many hubs are asked for one answer: the request may be what
// ends them.
const mostSent = 3

// A Frontend passes on what one client and its hub say to each other.
type Frontend struct {
	// Connect connects to the hub, or starts it.
	Connect func(context.Context, Hello) (*Conn, error)
	Log     *slog.Logger
	// Aside gets the lines that the hub logs for this client.
	Aside io.Writer
	// About is what the hub needs to know.
	About json.RawMessage
	// Process is this process's number.
	Process int

	client string
	end    sync.Once
	ended  chan struct{} // closed when Serve is to return why
	why    error

	// turn is held while a line of the client is passed on, and while another hub
	// takes the place of one that has ended.
	turn        sync.Mutex
	conn        *link  // nil: not connected
	leaving     bool   // the client has closed its end
	initialize  []byte // what to say to another hub
	initialized []byte
	ran         bool // a call may have left something in the hub

	writing sync.Mutex
	out     io.Writer
	outErr  error

	mu    sync.Mutex
	open  []*request      // that have no answer, in order; who has the turn has their fields
	asked map[string]bool // what the hub has asked the client
}

// link is a connection, and what has become of it.
type link struct {
	*Conn
	gone chan struct{} // closed when all that it sent is passed on
}

// request is a request of the client that has no answer.
type request struct {
	message
	// unsent means that no hub can have seen it.
	unsent bool
	// repeated means that the client has the answer: it is said to another hub.
	repeated bool
	sent     int // how many hubs have got it
}

// A NoneError says why there is no hub.
type NoneError struct{ Err error }

func (e *NoneError) Error() string { return e.Err.Error() }
func (e *NoneError) Unwrap() error { return e.Err }

// Serve connects, and serves a client until stdin ends, or ctx is done. Where
// there is no hub for the first connection it reads nothing and returns a
// *NoneError. When it returns because of ctx, a read of stdin may still be in
// progress.
func (f *Frontend) Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	f.client, f.out = NewID(), stdout
	f.ended, f.asked = make(chan struct{}), map[string]bool{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.turn.Lock()
	err := f.connect(ctx)
	f.turn.Unlock()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err != nil {
		return &NoneError{err}
	}
	if err == nil {
		go f.read(ctx, stdin)
		select {
		case <-f.ended:
			err = f.why
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	cancel() // which closes the connection
	return err
}

// NewID returns what tells one client from all others.
func NewID() string { return strings.ToLower(rand.Text()[:16]) }

// finish has Serve return.
func (f *Frontend) finish(why error) {
	f.end.Do(func() {
		f.why = why
		close(f.ended)
	})
}

// read passes on the client's lines until it closes its end.
func (f *Frontend) read(ctx context.Context, stdin io.Reader) {
	r := bufio.NewReaderSize(stdin, 16<<10)
	for {
		line, err := clientLine(r)
		switch {
		case errors.Is(err, errTooLong):
			f.write(errorLine([]byte("null"), -32700, fmt.Sprintf("parse error: a message is longer than %d bytes", maxLine)))
		case err != nil:
			f.leave(ctx, err)
			return
		default:
			f.take(ctx, line)
		}
	}
}

// leave lets the hub finish after the client has closed its end, as long as the
// client can read what it answers.
func (f *Frontend) leave(ctx context.Context, err error) {
	f.turn.Lock()
	f.leaving = true
	l := f.conn
	f.turn.Unlock()
	if l != nil {
		_ = l.CloseWrite()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			if pipe.Deserted(ctx, f.out) {
				cancel()
			}
		}()
		select {
		case <-l.gone:
			f.answerLost(l, true)
		case <-ctx.Done():
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	f.finish(err)
}

// take passes on a line of the client.
func (f *Frontend) take(ctx context.Context, line []byte) {
	messages := parse(line)
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	var mine []*request
	for _, m := range messages {
		switch {
		case m.call():
			if len(messages) > 1 { // sent by itself to another hub: see send
				m.item = append(make([]byte, 0, len(m.item)+1), m.item...)
			}
			r := &request{message: m}
			f.open, mine = append(f.open, r), append(mine, r)
			if m.method == methodInitialize {
				f.initialize = m.item
			}
		case m.method == methodInitialized:
			f.initialized = line
		case m.method == methodCancelled:
			f.cancelled(m.cancels())
		case m.method == "" && m.id != nil:
			id := key(m.id)
			if !f.asked[id] {
				id = strings.TrimPrefix(id, `"`) // some clients answer 7 as "7"
			}
			if !f.asked[id] && len(messages) == 1 {
				f.mu.Unlock()
				return // to a hub that has ended
			}
			delete(f.asked, id)
		}
	}
	f.mu.Unlock()
	if f.conn != nil {
		f.send(line, mine)
		return
	}
	for _, r := range mine {
		r.unsent = true
	}
	if len(mine) > 0 { // a notification means nothing to another hub
		f.reconnect(ctx)
	}
}

// send sends a line with requests of the client. Its memory has room for a line
// feed.
func (f *Frontend) send(line []byte, requests []*request) {
	n, err := f.conn.Write(append(line, '\n'))
	for _, r := range requests {
		r.unsent = err != nil && n == 0
		r.sent++
		f.ran = f.ran || r.method == methodCall && !r.unsent
	}
	// An error shows as the end of the connection, too.
}

// cancelled forgets a request that the client does not wait for. The lock is held.
func (f *Frontend) cancelled(id []byte) {
	for i, r := range f.open {
		if id != nil && key(r.id) == key(id) && r.method != methodInitialize {
			f.open = slices.Delete(f.open, i, i+1)
			return
		}
	}
}

// connect makes a connection, whose lines are passed on from now on. The turn is
// held.
func (f *Frontend) connect(ctx context.Context) error {
	c, err := f.Connect(ctx, Hello{Client: f.client, Process: f.Process, About: f.About, Lost: f.ran})
	if err != nil {
		return err
	}
	l := &link{c, make(chan struct{})}
	f.conn = l
	go func() {
		f.pass(ctx, l)
		close(l.gone)
		f.over(ctx, l)
	}()
	return nil
}

// pass passes on what a hub says, until it has ended.
func (f *Frontend) pass(ctx context.Context, l *link) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		line, err := hubLine(l.in)
		if err != nil {
			return
		}
		switch {
		case len(line) > 0 && line[0] == aside:
			_, _ = f.Aside.Write(append(line[1:], '\n'))
		case f.answered(line):
			f.write(line)
		}
	}
}

// answered notes what a line of the hub answers, and reports whether it is the
// client's.
func (f *Frontend) answered(line []byte) bool {
	id, rest := responseID(line)
	var messages []message
	if id != nil {
		messages = []message{{id: id}}
	} else if rest {
		messages = parse(line)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pass := true
	for _, m := range messages {
		if m.call() {
			f.asked[key(m.id)] = true
			continue
		}
		if m.id == nil || m.method != "" {
			continue
		}
		for i, r := range f.open {
			if key(r.id) == key(m.id) {
				f.open = slices.Delete(f.open, i, i+1)
				pass = !r.repeated
				break
			}
		}
	}
	return pass
}

// over tells the client which of its calls were lost with the hub, and has
// another one answer its other requests.
func (f *Frontend) over(ctx context.Context, l *link) {
	defer l.Close()
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.leaving || ctx.Err() != nil {
		return
	}
	f.Log.Warn("the hub has ended", "process", l.Hub)
	f.answerLost(l, false)
	f.conn = nil
	f.mu.Lock()
	f.asked = map[string]bool{}
	waiting := len(f.open) > 0
	f.mu.Unlock()
	if waiting {
		f.reconnect(ctx)
	}
}

// answerLost answers the calls that may have run. last means that no other hub is to
// answer the rest.
func (f *Frontend) answerLost(l *link, last bool) {
	f.mu.Lock()
	var lost, rest []*request
	for _, r := range f.open {
		switch {
		case r.repeated:
		case last || r.sent >= mostSent || !r.unsent && r.method == methodCall:
			lost = append(lost, r)
		default:
			rest = append(rest, r)
		}
	}
	f.open = rest
	f.mu.Unlock()
	for _, r := range lost {
		switch {
		case r.method == methodCall && !r.unsent:
			f.write(lostCall(r, l.Hub))
		case last:
			f.write(errorLine(r.id, codeLost, fmt.Sprintf("Sallyport's hub (process %d) ended before it answered this", l.Hub)))
		default:
			f.write(errorLine(r.id, codeLost, "Sallyport's hub ended whenever it was to answer this: see 'sallyport hub logs'"))
		}
	}
}

// reconnect connects to another hub and repeats what it has to know. Requests are
// answered with an error where there is none. The turn is held.
func (f *Frontend) reconnect(ctx context.Context) {
	if err := f.connect(ctx); err != nil {
		if ctx.Err() != nil {
			return
		}
		f.Log.Error("no hub could be started", "error", err)
		f.mu.Lock()
		open := f.open
		f.open = nil
		f.mu.Unlock()
		for _, r := range open {
			if !r.repeated {
				f.write(errorLine(r.id, codeLost, "Sallyport's hub could not be started again: "+err.Error()))
			}
		}
		return
	}
	f.Log.Info("connected to another hub", "process", f.conn.Hub)
	f.mu.Lock()
	open := append([]*request{}, f.open...)
	begins := slices.ContainsFunc(open, func(r *request) bool { return r.method == methodInitialize })
	if f.initialize != nil && !begins {
		first := parse(f.initialize)
		f.open = append([]*request{{message: first[0], repeated: true}}, f.open...)
	}
	f.mu.Unlock()
	if f.initialize != nil && !begins {
		f.send(f.initialize, nil)
		if f.initialized != nil {
			f.send(f.initialized, nil)
		}
	}
	// What is left of a batch goes by itself: its calls must not run again.
	for _, r := range open {
		f.send(r.item, []*request{r})
	}
}

// write writes a line to the client. If that fails, the client has gone.
func (f *Frontend) write(line []byte) {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.outErr != nil {
		return
	}
	if _, f.outErr = f.out.Write(append(line, '\n')); f.outErr != nil {
		f.finish(fmt.Errorf("writing to the client: %w", f.outErr))
	}
}

// Lost says what is lost with a hub that ended while it ran something, in a session
// that has a name or none.
func Lost(hub int, what, session string) string {
	text := fmt.Sprintf("Sallyport's hub (process %d) ended while %s ran, and its result is lost. Which of its effects took place is unknown: check before you run it again.", hub, what)
	if session != "" {
		text += fmt.Sprintf(" Session %s goes on from where it was last saved, if it was.", session)
	}
	return text
}

// lostCall is the answer to a call that was lost.
func lostCall(r *request, hub int) []byte {
	text := Lost(hub, "this call", r.session())
	if r.session() == "" {
		text += " The variables of the default session are lost; named sessions go on from where they were last saved."
	}
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type result struct {
		Content    []content `json:"content"`
		IsError    bool      `json:"isError"`
		ResultType string    `json:"resultType,omitempty"`
	}
	answer := result{Content: []content{{"text", text}}, IsError: true}
	if r.stateless() {
		answer.ResultType = "complete"
	}
	return encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  result          `json:"result"`
	}{"2.0", r.id, answer})
}

// errorLine is an answer with an error.
func errorLine(id []byte, code int, text string) []byte {
	type failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	return encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   failure         `json:"error"`
	}{"2.0", id, failure{code, text}})
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("hub: " + err.Error()) // of our own types, and IDs that were parsed
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
