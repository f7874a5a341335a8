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
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
)

// Approvals has the questions that people answer; *approval.Book is one.
type Approvals interface {
	Next(context.Context, func(*approval.Question) bool) (approval.Question, error)
	Get(id string) (approval.Question, error)
	Answer(approval.Answer) (approval.Outcome, error)
}

// How the user of a client can be asked. Clients of the stateless revisions are
// asked by the result of a call, which they then repeat with the answer; others by
// a request.
type asks int

const (
	asksNothing asks = iota
	asksByRequest
	asksByResult
)

const (
	// inputKey names the one question in a result.
	inputKey = "approval"
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
}

// wants reports whether a question is one to ask with a call: of its execution, or
// of one that it waits for.
func (c *conn) wants(x *submitted, q *approval.Question) bool {
	if q.Connection() != c.server.config.Connection || q.Execution != x.id && !x.waits {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.taken[q.ID]
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

// takesForms reports whether a client that declares these capabilities takes
// forms.
func takesForms(capabilities *mcp.ElicitationCapabilities) bool {
	return capabilities != nil && (capabilities.Form != nil || capabilities.URL == nil)
}

// declaresForms is takesForms for a request's metadata.
func (m requestMeta) declaresForms() bool {
	var capabilities struct {
		Elicitation *mcp.ElicitationCapabilities `json:"elicitation"`
	}
	return m.declares("elicitation", &capabilities) && takesForms(capabilities.Elicitation)
}

// asksInSession returns how the client of a session with a handshake is asked.
func (c *conn) asksInSession() asks {
	if c.server.config.Approvals == nil || c.sdk == nil {
		return asksNothing
	}
	p := c.sdk.InitializeParams()
	if p == nil || p.Capabilities == nil || !takesForms(p.Capabilities.Elicitation) {
		return asksNothing
	}
	return asksByRequest
}

// asksOf returns how the client of a request that the SDK handles is asked.
func (c *conn) asksOf(req *mcp.CallToolRequest) asks {
	version, _ := req.Params.Meta[mcp.MetaKeyProtocolVersion].(string)
	if version < tasks.Since {
		return c.asksInSession()
	}
	capabilities := req.ClientCapabilities()
	if c.server.config.Approvals == nil || capabilities == nil || !takesForms(capabilities.Elicitation) {
		return asksNothing
	}
	return asksByResult
}

// perform runs a call to its end, or until its client has a question to answer.
func (c *conn) perform(ctx context.Context, x *submitted, how asks) (*broker.Result, *parked) {
	switch how {
	case asksByRequest:
		defer c.askDuring(ctx, c.stop, x, c.elicit)()
	case asksByResult:
		return c.attend(ctx, c.park(x))
	}
	return c.run(ctx, x.run), nil
}

// asker asks the client, and returns the action and the content of its answer.
type asker func(context.Context, approval.Form) (*mcp.ElicitResult, error)

// askDuring asks the questions of a call until end is called, one after the other.
// A question that is being asked then stays asked as long as it and life last.
func (c *conn) askDuring(ctx, life context.Context, x *submitted, ask asker) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			q, err := c.server.config.Approvals.Next(ctx, func(q *approval.Question) bool { return c.wants(x, q) })
			if err != nil {
				return
			}
			if form, ok := q.Form(true); c.take(q.ID) && ok {
				c.put(life, x, q, form, ask)
			}
		}
	}()
	return cancel
}

// put asks a question and passes on the answer, unless another one came first. An
// answer that does not count has the question asked again.
func (c *conn) put(ctx context.Context, x *submitted, q approval.Question, form approval.Form, ask asker) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-q.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	for asked := 1; ; asked++ {
		answer, err := ask(ctx, form)
		if err == nil {
			err = c.decide(x, &q, answer)
		} else if !errors.Is(err, errUnfit) {
			if ctx.Err() == nil {
				c.log.Warn("the client could not be asked", "question", q.ID, "error", err)
			}
			return
		}
		ok := false
		if err == nil {
			return
		} else if q, form, ok = c.again(&q, err, asked, true); !ok {
			return
		}
	}
}

// decide passes on what the client answered. The error says why that does not count.
func (c *conn) decide(x *submitted, q *approval.Question, answer *mcp.ElicitResult) error {
	a, answered, err := q.Parse(answer.Action, answer.Content)
	if err != nil || !answered {
		return err
	}
	a.By = approval.By("client", x.client)
	_, err = c.server.config.Approvals.Answer(a)
	return err
}

// again returns a question as it is now and the form that asks it once more, after
// an answer that does not count. ok is false where there is nothing to ask any more,
// and where it was asked often enough: it stays open for others.
func (c *conn) again(q *approval.Question, why error, asked int, legacy bool) (now approval.Question, form approval.Form, ok bool) {
	now, gone := c.server.config.Approvals.Get(q.ID)
	if gone == nil && asked <= maxAgain {
		if form, ok = now.Form(legacy); ok {
			return now, form.Again(why), true
		}
	}
	c.log.Warn("the client's answer does not count", "question", q.ID, "error", why)
	return now, form, false
}

// elicit asks by a request.
func (c *conn) elicit(ctx context.Context, form approval.Form) (*mcp.ElicitResult, error) {
	answer, err := c.sdk.Elicit(ctx, &mcp.ElicitParams{Mode: form.Mode, Message: form.Message, RequestedSchema: form.Schema})
	var refused *sdkrpc.Error
	if err != nil && ctx.Err() == nil && !errors.As(err, &refused) { // the SDK compares it with the schema
		err = errors.Join(errUnfit, err)
	}
	return answer, err
}

// byTask asks by a task.
func byTask(t *tasks.Task) asker {
	return func(ctx context.Context, form approval.Form) (*mcp.ElicitResult, error) {
		raw, err := t.Ask(ctx, tasks.Question{Method: "elicitation/create", Params: form})
		if err != nil {
			return nil, err
		}
		var answer mcp.ElicitResult
		if json.Unmarshal(raw, &answer) != nil {
			return nil, errUnfit
		}
		return &answer, nil
	}
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
	form     approval.Form
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
		if p.rounds < maxRounds {
			go func() {
				q, err := c.server.config.Approvals.Next(waiting, func(q *approval.Question) bool { return c.wants(p.submitted, q) })
				if err == nil {
					next <- q
				}
			}()
		}
		select {
		case <-p.done:
			stop()
			return p.result, nil
		case q := <-next:
			stop()
			if form, ok := q.Form(false); c.take(q.ID) && ok && c.leave(p, q, form) {
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

// leave keeps a call until its client repeats it, and reports whether there is
// room.
func (c *conn) leave(p *parked, q approval.Question, form approval.Form) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parked) >= maxInFlight {
		return false
	}
	p.rounds++
	if p.asked++; p.question.ID != q.ID {
		p.asked = 1
	}
	p.question, p.form, p.state = q, form, rand.Text()
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

// errWrongAnswer is the answer to a call that is repeated with what answers no form.
// It goes on waiting.
var errWrongAnswer = &sdkrpc.Error{Code: sdkrpc.CodeInvalidParams, Message: `inputResponses.` + inputKey + ` must be the result of elicitation/create; the call still waits to be repeated with one, and nothing was run`}

// claim returns the call that waits to be repeated with this state, once, and the
// answer. Where there is no answer to its question, asks is what asks it: the call
// waits on, as it does after an error.
func (c *conn) claim(params *mcp.CallToolParamsRaw) (p *parked, answer *mcp.ElicitResult, asks *parked, err error) {
	argument := digest(params.Arguments)
	response, answered := params.InputResponses[inputKey]
	answer, fits := response.(*mcp.ElicitResult)
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.parked[params.RequestState]
	switch {
	case p == nil:
		return nil, nil, nil, errNoSuchState
	case p.argument != argument:
		return nil, nil, nil, errWrongRepeat
	case answered && (!fits || answer == nil):
		return nil, nil, nil, errWrongAnswer
	case !answered && p.undecided():
		return nil, nil, &parked{form: p.form, state: p.state}, nil
	}
	delete(c.parked, p.state)
	p.expires.Stop()
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
	p, answer, asks, err := c.claim(req.Params)
	if p == nil {
		return nil, asks, err
	}
	if answer != nil {
		if err := c.decide(p.submitted, &p.question, answer); err != nil {
			q, form, ok := c.again(&p.question, err, p.asked, false)
			if ok && p.rounds < maxRounds && c.leave(p, q, form) {
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
			again := c.park(c.submit(principal(req), arguments, orSilent(beat), false))
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

// wireAsks is a result that asks, for our own encoder.
type wireAsks struct {
	Meta     json.RawMessage            `json:"_meta,omitempty"`
	Type     string                     `json:"resultType"`
	Requests map[string]*tasks.Question `json:"inputRequests"`
	State    string                     `json:"requestState"`
}

// asksOnWire returns the result that asks the question of a call.
func (c *conn) asksOnWire(p *parked) wireAsks {
	return wireAsks{c.server.resultMeta, "input_required", map[string]*tasks.Question{inputKey: {Method: "elicitation/create", Params: p.form}}, p.state}
}

// asksOfSDK is asksOnWire for the SDK.
func asksOfSDK(p *parked) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{inputKey: &mcp.ElicitParams{Mode: p.form.Mode, Message: p.form.Message, RequestedSchema: p.form.Schema}},
		RequestState:  p.state,
	}
}
