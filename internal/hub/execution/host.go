package execution

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// statusEvery is how often a client hears what its execution does.
const statusEvery = time.Second

// requestID are the IDs that a client may give an execution: no one guesses them.
var requestID = lazyregexp.New(`\A[a-z0-9]{12,40}\z`)

// A Host runs the request of one client.
type Host struct {
	Execute   func(context.Context, broker.Request) *broker.Result
	Principal authz.Principal
	// Before, if not nil, is called before the code runs, with the servers that
	// the request names.
	Before func(ctx context.Context, servers []string, status func(string))
	// Questions, if not nil, calls asked with a line for each question of the code to
	// a person, until ctx is done.
	Questions func(ctx context.Context, asked func(text string))
	// Lines has what the client's log gets.
	Lines <-chan []byte
	// Files bounds the contents of files that all hosts of a process hold.
	Files *budget.Budget
}

// Serve runs the request that a client sends, and sends the result. The code ends
// when the client has gone or ctx is done. A read of in may outlive Serve, until
// the caller closes it.
func (h *Host) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	from, to := wire.NewReader(in), &sender{to: out}
	m := &message{from: from, kind: kindRequest}
	head, req, release, err := h.request(m)
	if err != nil {
		_, _ = io.CopyN(io.Discard, m, maxHead+maxCode+maxFiles) // the client listens after that
		r := broker.Invalid("the hub cannot run this: " + err.Error())
		return errors.Join(err, sendResult(to, r))
	}
	defer release()
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(broker.ErrStop) })()
	x := &host{to: to, input: make(chan reply, 1), taken: make(chan reply, 1), gone: make(chan struct{})}
	go x.read(from, cancel)
	x.serve(head, req)
	telling, told := context.WithCancel(life)
	var ended sync.WaitGroup
	ended.Go(func() { x.tell(telling, h.Lines, req.Activity) })
	if h.Questions != nil {
		ended.Go(func() {
			h.Questions(telling, func(text string) {
				if head.Asks {
					_ = to.text(kindAsks, text)
				} else {
					_ = to.text(kindLog, text+"\n")
				}
			})
		})
	}
	if h.Before != nil {
		h.Before(life, req.Servers, func(text string) {
			if head.Status {
				_ = to.text(kindStatus, text)
			}
		})
	}
	r := h.Execute(life, *req)
	told()
	ended.Wait()
	if ctx.Err() != nil {
		r.Error = strings.Replace(r.Error, "Cancelled by the client", "Ended with Sallyport's hub", 1)
	}
	if head.Output {
		r.Stdout, r.Stderr = nil, nil // the client has them
	}
	return sendResult(to, r)
}

func sendResult(to *sender, r *broker.Result) error {
	data, err := json.Marshal(answer{Result: r, Details: r.Details, OutOfMemory: r.OutOfMemory, NotTaken: r.NotTaken})
	if err != nil {
		return err
	}
	return to.last(kindResult, data)
}

// request reads the request. release frees what it holds.
func (h *Host) request(m *message) (*head, *broker.Request, func(), error) {
	var head head
	content, err := decode(m, maxHead, &head)
	if err != nil {
		return nil, nil, nil, err
	}
	req := &broker.Request{
		Principal: h.Principal, RequestID: head.Request, Shown: true, Servers: head.Servers, Session: head.Session, Env: head.Env, Mounts: head.Mounts, Activity: &broker.Activity{},
		Submission: broker.Submission{Filename: head.Filename, Script: head.Script, Args: head.Args, Timeout: time.Duration(head.Timeout), Measure: head.Measure},
	}
	if head.Request != "" && !requestID().MatchString(head.Request) {
		return nil, nil, nil, fmt.Errorf("the ID %.40q", head.Request)
	}
	var size int64
	for _, f := range head.Files {
		if f.Size < 0 || f.Size > maxFiles {
			return nil, nil, nil, fmt.Errorf("a file of %d bytes", f.Size)
		}
		size += int64(f.Size)
		req.Files = append(req.Files, sandbox.File{Path: f.Path, Mode: f.Mode})
	}
	switch {
	case head.Code < 0 || head.Code > maxCode:
		return nil, nil, nil, fmt.Errorf("code of %d bytes", head.Code)
	case size > maxFiles:
		return nil, nil, nil, fmt.Errorf("files of %d bytes", size)
	}
	if err := (&sandbox.Spec{ID: "files", Files: req.Files, Mounts: req.Mounts}).Check(); err != nil {
		return nil, nil, nil, err
	}
	if !h.Files.TryAcquire(size) {
		return nil, nil, nil, errors.New("it holds as many files for other programs as it may: try again later, or with --standalone")
	}
	release := func() { h.Files.Release(size) }
	code, err := read(content, head.Code)
	for i := 0; i < len(req.Files) && err == nil; i++ {
		req.Files[i].Data, err = read(content, head.Files[i].Size)
	}
	if err == nil {
		err = end(content)
	}
	if err != nil {
		release()
		return nil, nil, nil, err
	}
	req.Code = string(code)
	return &head, req, release, nil
}

// read reads n bytes, into memory that grows with what really comes.
func read(from io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(min(n, 1<<20))
	_, err := io.CopyN(&b, from, int64(n))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), err
}

// host is an execution in progress.
type host struct {
	to    *sender
	wants atomic.Int32 // of standard input; 0: nothing was asked for
	asked atomic.Bool  // a file is to be answered
	input chan reply
	taken chan reply
	gone  chan struct{} // closed when nothing more comes
}

// reply is the client's.
type reply struct {
	data []byte
	end  bool // data is an error, or nothing at the end
}

// serve connects the request with what the client takes part in.
func (x *host) serve(h *head, req *broker.Request) {
	if h.Input {
		req.Stdin = x
	}
	if h.Output {
		req.OnOutput = func(s wire.Stream, data []byte) {
			kind := wire.KindStdout
			if s == wire.Stderr {
				kind = wire.KindStderr
			}
			_ = x.to.parts(kind, data)
		}
	}
	if !h.Status {
		req.Activity = nil
	}
	if h.Take {
		req.TakeFiles = x.create
	}
}

// read reads what the client says until it has gone.
func (x *host) read(from *wire.Reader, cancel context.CancelCauseFunc) {
	defer close(x.gone)
	defer cancel(broker.ErrStop) // no one waits for the result
	for {
		kind, payload, err := from.Output()
		if err != nil {
			return
		}
		r, to := reply{data: bytes.Clone(payload)}, x.input
		switch kind {
		case kindCancel:
			cancel(context.Canceled)
			continue
		case kindInput, kindInputEnd:
			r.end = kind == kindInputEnd
			if most := x.wants.Swap(0); most == 0 || !r.end && len(payload) > int(most) {
				return
			}
		case kindTaken:
			if to = x.taken; !x.asked.Swap(false) {
				return
			}
		default:
			return
		}
		to <- r // which has room: there is one for each question
	}
}

// await returns the answer to a question that was sent.
func (x *host) await(from chan reply, sent error) (reply, error) {
	if sent != nil {
		return reply{}, sent
	}
	select {
	case r := <-from:
		return r, nil
	case <-x.gone:
		return reply{}, io.ErrUnexpectedEOF
	}
}

// Read reads the client's standard input. The code's session calls it, one call at a
// time.
func (x *host) Read(p []byte) (int, error) {
	n := min(len(p), wire.MaxStdin)
	if n == 0 {
		return 0, nil
	}
	x.wants.Store(int32(n))
	r, err := x.await(x.input, x.to.send(kindWant, binary.BigEndian.AppendUint32(nil, uint32(n))))
	switch {
	case err != nil:
		return 0, err
	case r.end && len(r.data) == 0:
		return 0, io.EOF
	case r.end:
		return 0, errors.New(string(r.data))
	}
	return copy(p, r.data), nil
}

// ask asks the client to begin or to end a file.
func (x *host) ask(kind wire.Kind, text string) error {
	x.asked.Store(true)
	r, err := x.await(x.taken, x.to.text(kind, text))
	if err == nil && len(r.data) > 0 {
		err = errors.New(string(r.data))
	}
	return err
}

// create implements broker.Request.TakeFiles.
func (x *host) create(path string) (io.Writer, func(bool) error, error) {
	if len(path) > maxText {
		return nil, nil, errors.New("its name is too long")
	}
	if err := x.ask(kindFile, path); err != nil {
		return nil, nil, err
	}
	return content{x.to}, func(whole bool) error {
		if whole {
			return x.ask(kindWhole, "")
		}
		return x.to.send(kindDropped, nil)
	}, nil
}

// content writes the content of a file.
type content struct{ to *sender }

func (c content) Write(p []byte) (int, error) {
	if err := c.to.parts(kindData, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// tell sends the lines of the log, and what the execution does, until ctx is done;
// then the lines that are left.
func (x *host) tell(ctx context.Context, lines <-chan []byte, activity *broker.Activity) {
	said := ""
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	if activity == nil {
		tick.Stop()
	}
	for {
		select {
		case line := <-lines:
			_ = x.to.text(kindLog, string(line))
		case <-tick.C:
			if now := activity.String(); now != said {
				said = now
				_ = x.to.text(kindStatus, now)
			}
		case <-ctx.Done():
			for len(lines) > 0 {
				_ = x.to.text(kindLog, string(<-lines))
			}
			return
		}
	}
}
