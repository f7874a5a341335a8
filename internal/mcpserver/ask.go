package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
)

// Approvals has the questions that people answer; *approval.Book is one.
type Approvals interface {
	Next(context.Context, func(*approval.Question) bool) (approval.Question, error)
	Get(id string) (approval.Question, error)
	Answer(approval.Answer) (approval.Outcome, error)
}

const (
	// maxRounds bounds the questions of one call that its results ask: clients give
	// up after ten.
	maxRounds = 9
	// maxAgain bounds how often a question is asked again because the answer does not
	// count.
	maxAgain = 3
	// parkedFor bounds how long a call waits to be repeated.
	parkedFor = 30 * time.Minute
	// maxTaken bounds the questions that a connection remembers to have asked.
	maxTaken = 1000
)

// errNotRepeated is the cause of a context of a call that its client asked nothing
// of any more.
var errNotRepeated = errors.New("the client did not repeat the call with an answer")

// errUnfit is an answer that is none to the form.
var errUnfit = errors.New("the answer does not fit the form")

// submitted is a call of run_python whose place in its session's queue was taken.
type submitted struct {
	run      func(context.Context) *broker.Result
	id       string // of the execution
	waits    bool   // it has no code: it waits for what runs
	session  string
	backend  string
	client   string
	beat     *heartbeat // may be nil
	argument [sha256.Size]byte
	takes    inquiry.Takes   // what its client can be asked; the connection's lock guards it, once it runs
	roots    json.RawMessage // see namedRoots
}

// wants reports whether a question is one to ask with a call: of its execution, or
// of one that it waits for.
func (c *conn) wants(x *submitted, q *approval.Question) bool {
	if q.Connection() != c.server.config.Connection || q.Execution != x.id && !x.waits {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fits(x.takes, q) && !c.taken[q.ID]
}

// take notes that the client is asked a question, unless it is or was already.
func (c *conn) take(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken[id] {
		return false
	}
	if c.taken == nil || len(c.taken) >= maxTaken {
		c.taken = map[string]bool{}
	}
	c.taken[id] = true
	return true
}

// perform runs a call to its end, or until its client has a question to answer.
func (c *conn) perform(ctx context.Context, x *submitted, stateless bool) (*broker.Result, *parked) {
	switch asksHow(x.takes, stateless) {
	case asksByRequest:
		defer c.askDuring(ctx, c.stop, x, c.byRequest)()
	case asksByResult:
		return c.attend(ctx, c.park(x))
	}
	return c.run(ctx, x.run), nil
}

// askDuring asks the questions of a call until end is called: those for people one
// after the other, while others are asked at once. A question that is being asked
// then stays asked as long as it and life last.
func (c *conn) askDuring(ctx, life context.Context, x *submitted, ask asker) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	each := func(which func(*approval.Question) bool, put func(approval.Question)) {
		for {
			q, err := c.server.config.Approvals.Next(ctx, func(q *approval.Question) bool { return which(q) && c.wants(x, q) })
			if err != nil {
				return
			}
			if c.take(q.ID) {
				put(q)
			}
		}
	}
	if x.takes.Forms || x.takes.URLs {
		go each((*approval.Question).ForPeople, func(q approval.Question) { c.put(life, x, q, ask) })
	}
	if x.takes.Sampling || x.takes.Roots {
		room := make(chan struct{}, maxSampling)
		go each(forPrograms, func(q approval.Question) { // as many as may be open
			go func() {
				if q.Asks.Method == inquiry.Sampling {
					select {
					case room <- struct{}{}:
						defer func() { <-room }()
					case <-q.Ended():
						return
					case <-life.Done():
						return
					}
				}
				c.put(life, x, q, ask)
			}()
		})
	}
	return cancel
}

// put asks a question and passes on the answer, unless another one came first. An
// answer that does not count has the question asked again.
func (c *conn) put(ctx context.Context, x *submitted, q approval.Question, ask asker) {
	in, ok := inputOf(&q, true)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-q.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	for asked := 1; ok; asked++ {
		result, err := ask(ctx, in.Question)
		if err != nil {
			c.unanswered(ctx, x, &q, err)
			return
		}
		if err = c.decide(x, &q, result); err == nil {
			return
		}
		q, in, ok = c.again(x, &q, err, asked, true)
	}
}

// decide passes on what the client answered. The error says why that does not count.
func (c *conn) decide(x *submitted, q *approval.Question, result json.RawMessage) error {
	if q.Asks != nil {
		return c.reply(x, q, result)
	}
	var answer mcp.ElicitResult
	if json.Unmarshal(result, &answer) != nil {
		return errUnfit
	}
	a, answered, err := q.Parse(answer.Action, answer.Content)
	if err != nil || !answered {
		return err
	}
	a.By = approval.By("client", x.client)
	_, err = c.server.config.Approvals.Answer(a)
	return err
}

// again returns a question as it is now and how to ask it once more, after an answer
// that does not count. ok is false where there is nothing to ask any more, and where
// it was asked often enough: it stays open for others, if they can answer it.
func (c *conn) again(x *submitted, q *approval.Question, why error, asked int, legacy bool) (now approval.Question, in input, ok bool) {
	now, gone := c.server.config.Approvals.Get(q.ID)
	switch {
	case gone == nil && forPrograms(q):
		c.giveUp(x, q)
	case gone == nil && asked <= maxAgain:
		if in, ok = inputOf(&now, legacy); ok {
			return now, in.again(why), true
		}
	}
	c.log.Warn("the client's answer does not count", "question", q.ID, "error", why)
	return now, in, false
}

// parked is a call that may be answered with a question: it goes on while its
// client asks the user, and waits for the client to repeat it.
type parked struct {
	*submitted
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when result is set
	result *broker.Result

	rounds   int // results that asked
	asked    int // of these, about question
	question approval.Question
	input    input  // how it is asked
	state    string // that the client repeats it with
	expires  *time.Timer
}

// park runs a call apart from the request that began it.
func (c *conn) park(x *submitted) *parked {
	ctx, cancel := context.WithCancelCause(c.stop)
	p := &parked{submitted: x, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer cancel(nil)
		p.result = c.run(ctx, x.run)
	}()
	return p
}

// attend waits for the end of a call, or for a question to ask with its result.
func (c *conn) attend(ctx context.Context, p *parked) (*broker.Result, *parked) {
	for {
		waiting, stop := context.WithCancel(ctx)
		next := make(chan approval.Question, 1)
		full := p.rounds >= maxRounds
		go func() {
			q, err := c.server.config.Approvals.Next(waiting, func(q *approval.Question) bool {
				return (!full || forPrograms(q)) && c.wants(p.submitted, q)
			})
			if err == nil {
				next <- q
			}
		}()
		select {
		case <-p.done:
			stop()
			return p.result, nil
		case q := <-next:
			stop()
			if c.take(q.ID) && c.leaves(p, q, full) {
				return nil, p
			}
		case <-ctx.Done():
			stop()
			p.cancel(context.Cause(ctx))
			<-p.done
			return p.result, nil
		}
	}
}

// leaves is leave for a question that has come up, unless it is answered otherwise.
func (c *conn) leaves(p *parked, q approval.Question, full bool) bool {
	if roots := c.namedRoots(p.submitted); roots != nil && q.Asks != nil && q.Asks.Method == inquiry.Roots && c.reply(p.submitted, &q, roots) == nil {
		return false
	}
	in, ok := inputOf(&q, false)
	if ok = ok && !full && c.leave(p, q, in); !ok && forPrograms(&q) {
		c.giveUp(p.submitted, &q)
	}
	return ok
}

// leave keeps a call until its client repeats it, and reports whether there is
// room.
func (c *conn) leave(p *parked, q approval.Question, in input) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parked) >= maxInFlight {
		return false
	}
	p.rounds++
	if p.asked++; p.question.ID != q.ID {
		p.asked = 1
	}
	p.question, p.input, p.state = q, in, rand.Text()
	if c.parked == nil {
		c.parked = map[string]*parked{}
	}
	c.parked[p.state] = p
	state := p.state
	p.expires = time.AfterFunc(parkedFor, func() {
		if c.back(state) {
			p.cancel(errNotRepeated)
		}
	})
	return true
}

// back takes back the state that a call waits to be repeated with, and reports
// whether it was still good.
func (c *conn) back(state string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.parked[state]
	delete(c.parked, state)
	return waits
}

// errNoSuchState is the answer to a call that is repeated with a state that no
// call of the connection waits for. Its code does not run again.
var errNoSuchState = &sdkrpc.Error{Code: sdkrpc.CodeInvalidParams, Message: "no call waits for this requestState: it was answered, has expired, or belongs to another connection; nothing was run"}

// errWrongRepeat is the answer to a call that does not repeat the one that its state
// belongs to. That one goes on waiting.
var errWrongRepeat = &sdkrpc.Error{Code: sdkrpc.CodeInvalidParams, Message: "this requestState belongs to a call with other arguments, which still waits to be repeated with an answer; nothing was run"}

// wrongAnswer is the answer to a call that is repeated with what answers no such
// question. It goes on waiting.
func wrongAnswer(in input) *sdkrpc.Error {
	return &sdkrpc.Error{Code: sdkrpc.CodeInvalidParams, Message: "inputResponses." + in.key + " must be the result of " + in.Method + "; the call still waits to be repeated with one, and nothing was run"}
}

// claim returns the call that waits to be repeated with this state, once, and the
// answer. Where there is no answer to its question, asks is what asks it: the call
// waits on, as it does after an error. From now on its client takes what it declares
// now.
func (c *conn) claim(params *mcp.CallToolParamsRaw, takes inquiry.Takes) (p *parked, answer json.RawMessage, asks *parked, err error) {
	argument := digest(params.Arguments)
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.parked[params.RequestState]
	switch {
	case p == nil:
		return nil, nil, nil, errNoSuchState
	case p.argument != argument:
		return nil, nil, nil, errWrongRepeat
	}
	if response, answered := params.InputResponses[p.input.key]; answered {
		if answer = responseTo(p.input.Method, response); answer == nil {
			return nil, nil, nil, wrongAnswer(p.input)
		}
	} else if p.undecided() {
		return nil, nil, &parked{input: p.input, state: p.state}, nil
	}
	delete(c.parked, p.state)
	p.expires.Stop()
	p.takes = takes
	return p, answer, nil, nil
}

// undecided reports whether the question of a call is open.
func (p *parked) undecided() bool {
	select {
	case <-p.question.Ended():
		return false
	case <-p.done:
		return false
	default:
		return true
	}
}

// repeated goes on with a call that its client repeats with an answer.
func (c *conn) repeated(ctx context.Context, req *mcp.CallToolRequest, beat *heartbeat) (*broker.Result, *parked, error) {
	who, _ := c.caller(req)
	p, answer, asks, err := c.claim(req.Params, who.Takes)
	if p == nil {
		return nil, asks, err
	}
	if answer != nil {
		if err := c.decide(p.submitted, &p.question, answer); err != nil {
			q, in, ok := c.again(p.submitted, &p.question, err, p.asked, false)
			if ok && p.rounds < maxRounds && c.leave(p, q, in) {
				return nil, p, nil
			}
		}
	}
	if beat != nil {
		beat.activity.Follow(p.beat.describe)
	}
	select {
	case <-p.done:
		if p.result.Status == broker.Running { // the user took longer than a call may
			arguments, _ := marshal(map[string]string{"session": p.session, "backend": p.backend})
			again := c.park(c.submit(who, arguments, orSilent(beat), false))
			again.argument, again.rounds = p.argument, p.rounds
			p = again
		}
	default:
	}
	r, asks := c.attend(ctx, p)
	return r, asks, nil
}

// orSilent returns the heartbeat, or one that sends nothing and can be asked what a
// call does.
func orSilent(beat *heartbeat) *heartbeat {
	if beat == nil {
		return startHeartbeat(nil)
	}
	return beat
}

// digest identifies the arguments of a call, however they are written.
func digest(arguments json.RawMessage) [sha256.Size]byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			return sha256.Sum256(canonical)
		}
	}
	return sha256.Sum256(arguments)
}

// wireAsks is a result that asks.
type wireAsks struct {
	mcp.ResultBase
	Type     string                    `json:"resultType"`
	Requests map[string]tasks.Question `json:"inputRequests"`
	State    string                    `json:"requestState"`
}

// asksOnWire returns the result that asks one question, after which the client
// repeats the call with a state.
func (c *conn) asksOnWire(in input, state string) *wireAsks {
	return &wireAsks{mcp.ResultBase{Meta: mcp.Meta{mcp.MetaKeyServerInfo: c.server.impl}}, "input_required", map[string]tasks.Question{in.key: in.Question}, state}
}

// Error has the tool's handler return it, which can return no other result than the
// SDK's. The SDK's own would ask with parameters that it knows, and no others.
func (*wireAsks) Error() string { return "the client is asked" }

// allowAsks lets the tool's handler return a wireAsks.
func allowAsks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		var asks *wireAsks
		if errors.As(err, &asks) {
			return asks, nil
		}
		return result, err
	}
}
