package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/places"
)

// maxRuns bounds the runs on batch services that are known to be a client's.
const maxRuns = 1000

// errGone is the cause of a context that ended because its client has gone. Code in
// a session that several clients share is interrupted then, and not killed.
var errGone = errors.New("the client has gone")

var validClient = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)

// A Client is what one client may do with a Broker. It reaches the user's named
// sessions, and of the sessions, results and runs that belong to one client only its
// own. It is safe for concurrent use.
type Client struct {
	// ShowUsage adds the usage to every result. It is set before the first request.
	ShowUsage bool

	broker *Broker
	bridge *bridge.Bridge
	id     string
	line   *places.Line
	ended  chan struct{}

	mu         sync.Mutex
	name       string                    // as the client calls itself
	used       map[session.Key]time.Time // named sessions, and since when
	unkept     map[session.Key]bool      // sessions of which it was said that they are not kept
	rootless   map[session.Key]bool      // sessions of which it was said that they do not see its roots
	runs       []string                  // on batch services, the latest last
	executions int                       // that run or wait
	unrecorded uint64                    // the last period without records that it has heard of
	declared   int                       // those in its own session that outlive its connection: see Request.Whole
	gone       bool
	ownRuns    int // executions in its own session that ended
}

// NewClient returns what a client may do whose code reaches these servers. The ID
// tells it from the Broker's other clients: 1 to 64 letters, digits, dots, dashes and
// underscores. The servers must stay open until Ended is closed. The caller calls End.
func (b *Broker) NewClient(id string, servers *bridge.Bridge) (*Client, error) {
	if !validClient().MatchString(id) {
		return nil, fmt.Errorf("broker: %q identifies no client", id)
	}
	if servers == nil {
		return nil, errors.New("broker: a client comes with its servers")
	}
	c := &Client{
		broker: b, bridge: servers, id: id, line: b.places.Line(), ended: make(chan struct{}),
		used: map[session.Key]time.Time{}, unkept: map[session.Key]bool{}, rootless: map[session.Key]bool{},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients[id] != nil {
		return nil, fmt.Errorf("broker: there is a client %s already", id)
	}
	b.clients[id] = c
	return c, nil
}

// ID returns what tells the client from the broker's others. Principals have it as
// their Connection.
func (c *Client) ID() string { return c.id }

// Environments returns the names of the user's environments, and the default one;
// empty: HostEnvironment.
func (c *Client) Environments() (names []string, byDefault string) {
	all := c.broker.config.Environments
	if all == nil {
		return nil, ""
	}
	return all.Names(), all.Default()
}

// Execute runs a request and returns its result, which is never nil. When ctx
// is done, the code is interrupted.
func (c *Client) Execute(ctx context.Context, req Request) *Result { return c.Submit(req)(ctx) }

// Submit takes the request's place in its session's queue, without blocking,
// and returns the function that runs it and blocks until it has ended, or until
// Request.Within has passed. That function must be called exactly once: the
// session waits for it.
func (c *Client) Submit(req Request) func(context.Context) *Result {
	own := &req
	own.client = c
	run := c.broker.wait(own)
	return func(ctx context.Context) *Result { return c.tellUnrecorded(ctx, run(ctx)) }
}

// unrecorded is the note of a result while nothing can be recorded.
const unrecorded = "the audit log cannot be written: what happens is not recorded until it can. `sallyport doctor` says why"

// tellUnrecorded returns the result with a note that what happens is not recorded, if
// the client has not heard of that. It leaves r as it is: other calls may read it.
func (c *Client) tellUnrecorded(ctx context.Context, r *Result) *Result {
	check := c.broker.config.Unrecorded
	if check == nil || ctx.Err() != nil { // no one reads the result
		return r
	}
	period := check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if period == 0 || period == c.unrecorded {
		return r
	}
	c.unrecorded = period
	told := *r
	told.Notes = append(slices.Clone(r.Notes), unrecorded)
	return &told
}

// Written returns what code wrote in an execution of a session of the client, as
// Result.Cell numbers it.
func (c *Client) Written(ctx context.Context, name string, cell uint64) (string, error) {
	b := c.broker
	if b.sessions == nil {
		return "", errNoEngine
	}
	if cell == 0 || cell > math.MaxInt64 {
		return "", fmt.Errorf("session %s has no execution %d", name, cell)
	}
	return b.sessions.Written(ctx, c.key("", name), int64(cell))
}

// Owns reports whether a run on a batch service, or a record of artifacts, is the
// client's: its code made it, or that of a client that called itself the same and has
// gone.
func (c *Client) Owns(run, name string) bool {
	b := c.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.clients {
		other.mu.Lock()
		began := slices.Contains(other.runs, run)
		other.mu.Unlock()
		if began {
			return other == c
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return name != "" && name == c.name
}

// key identifies a session of the client, by the name that the client uses.
func (c *Client) key(owner, name string) session.Key {
	if name == "" || name == DefaultSession {
		return session.Key{Owner: owner, Name: DefaultSession, Client: c.id}
	}
	return session.Key{Owner: owner, Name: name}
}

// End ends what only the client uses: its own session, and code that runs in the
// background. What it declared to outlive its connection (Request.Whole) goes on,
// in its own session too, which ends after that. No request runs from now on. End
// is prompt; Ended tells when all has ended. It is idempotent.
func (c *Client) End() {
	c.mu.Lock()
	first, busy := !c.gone, c.declared > 0
	c.gone = true
	c.mu.Unlock()
	if !first {
		return
	}
	c.broker.tasks.leave(c.id)
	if !busy {
		c.endOwn()
	}
	c.settle()
}

// Named notes how the client calls itself.
func (c *Client) Named(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name
}

func (c *Client) isGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Ended is closed when the client and its last execution have ended.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// endOwn ends the client's own sessions.
func (c *Client) endOwn() {
	if c.broker.sessions != nil {
		c.broker.sessions.EndOf(c.id)
	}
}

// settle notes the end of a client that has gone and whose executions have ended.
func (c *Client) settle() {
	b := c.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone && c.executions == 0 && b.clients[c.id] == c {
		delete(b.clients, c.id)
		if c.ownRuns > 0 && c.name != "" {
			b.departed = append(b.departed[max(0, len(b.departed)-maxDeparted+1):], departure{name: c.name, at: time.Now()})
		}
		close(c.ended)
	}
}

// A departure is a client that ran code in its own session and has gone.
type departure struct {
	name string
	at   time.Time
}

// A client is taken for one that makes a connection for each call if others of its
// name have just gone.
const (
	maxDeparted = 64
	justGone    = 10 * time.Minute
)

// reconnects reports whether the session that a request ran in is new because the
// client that had its variables has gone and connected anew.
func (c *Client) reconnects(key session.Key, out *session.Outcome) bool {
	if key.Client != c.id || out.Number != 1 {
		return false
	}
	b := c.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(b.departed, func(d departure) bool { return d.name == c.name && time.Since(d.at) < justGone })
}

// enter counts an execution, or returns why there can be no more.
func (c *Client) enter(req *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return errGone
	}
	if err := c.line.Enter(&req.turn); err != nil {
		return err
	}
	c.executions++
	if req.declared() {
		c.declared++
	}
	if c.name == "" {
		c.name = req.Principal.Client
	}
	return nil
}

// leave ends an execution.
func (c *Client) leave(req *Request) {
	c.mu.Lock()
	last := false
	req.turn.Leave()
	if req.declared() {
		c.declared--
		last = c.gone && c.declared == 0
	}
	c.mu.Unlock()
	if last {
		c.endOwn()
	}
	c.mu.Lock()
	c.executions--
	if req.key().Client == c.id {
		c.ownRuns++
	}
	c.mu.Unlock()
	c.settle()
}

// uses notes that the client uses a session.
func (c *Client) uses(key session.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.used[key]; !known && key.Client == "" && len(c.used) < maxNames {
		c.used[key] = time.Now().UTC()
	}
}

// began notes that a run on a batch service, or a record of artifacts, is the client's.
func (c *Client) began(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, run)
	if over := len(c.runs) - maxRuns; over > 0 {
		c.runs = slices.Delete(c.runs, 0, over)
	}
}

// first reports whether the client is to hear something of a session for the first
// time, and notes in heard, one of its maps, that it has.
func (c *Client) first(heard map[session.Key]bool, key session.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heard[key] || len(heard) >= maxNames {
		return false
	}
	heard[key] = true
	return true
}

// maxNames bounds how many names of sessions are remembered for one client.
const maxNames = 1000

// Executions returns how many executions run or wait, of all clients, including
// those that have gone.
func (b *Broker) Executions() int {
	n := 0
	for _, c := range b.all() {
		c.mu.Lock()
		n += c.executions
		c.mu.Unlock()
	}
	return n
}

// Turns returns how many executions run code, and how many wait for their turn.
func (b *Broker) Turns() (running, waiting int) { return b.places.Counts() }

// Turns returns how many executions of the client run code, and how many wait for
// their turn.
func (c *Client) Turns() (running, waiting int) { return c.line.Counts() }

// all returns the clients.
func (b *Broker) all() []*Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]*Client, 0, len(b.clients))
	for _, c := range b.clients {
		list = append(list, c)
	}
	return list
}

// name adds to sessions which clients use them.
func (b *Broker) name(list []session.Info) {
	for _, c := range b.all() {
		c.mu.Lock()
		for i := range list {
			s := &list[i]
			switch since, uses := c.used[session.Key{Owner: s.Owner, Name: s.Name}]; {
			case s.Unnamed && s.ClientID == c.id:
				s.Client = c.name
			case !s.Unnamed && uses && !c.gone:
				s.Users = append(s.Users, session.User{Client: c.name, ID: c.id, Since: since})
			}
		}
		c.mu.Unlock()
	}
	for i := range list {
		slices.SortFunc(list[i].Users, func(a, b session.User) int {
			if order := a.Since.Compare(b.Since); order != 0 {
				return order
			}
			return strings.Compare(a.ID, b.ID)
		})
	}
}

// guarded calls run. A defect that shows while one request is served ends no other.
func guarded(log *slog.Logger, req *Request, run func() *Result) (r *Result) {
	defer func() {
		if defect := recover(); defect != nil {
			log.Error("a request ended because of a defect", "request", req.RequestID, "defect", fmt.Sprint(defect), "stack", string(debug.Stack()))
			r = failure(errDefect)
		}
	}()
	return run()
}

// errDefect is the error of a request that a defect of this program ended.
var errDefect = errors.New("a defect of Sallyport ended the execution; its log has the details")

// caught makes an error of a defect that shows in a goroutine of an execution.
func (b *Broker) caught(req *Request, err *error) {
	if defect := recover(); defect != nil {
		b.log.Error("a part of a request ended because of a defect", "request", req.RequestID, "defect", fmt.Sprint(defect), "stack", string(debug.Stack()))
		*err = errDefect
	}
}
