// Package journal publishes what happens: executions, decisions, calls to
// servers, and changes of sessions and servers are typed events, each published
// once, by the part of the program where it happens. Whoever keeps records,
// counts or shows subscribes.
//
// A subscriber slows no one: each has a bounded queue and a goroutine. What does
// not fit into the queue is lost to that subscriber, counted, and reported to it
// and to the log. Only [Journal.Commit] waits, for subscribers that ask for it.
package journal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Topic is a group of events. Topics add up: Actions|Sessions.
type Topic uint16

// The topics.
const (
	Executions Topic = 1 << iota // ExecutionBegan, ExecutionEnded
	Usages                       // Used
	Actions                      // Decided, Finished
	Questions                    // Asked, Answered
	Sessions                     // SessionChanged
	Servers                      // ServerChanged

	Everything = Executions | Usages | Actions | Questions | Sessions | Servers
)

// Bounds of a subscriber's queue where its Options name none.
const (
	defaultEvents = 16 << 10
	defaultBytes  = 32 << 20
)

// ErrLost is what Commit returns for an event that a subscriber could not take.
var ErrLost = errors.New("the journal's queue is full")

// ErrClosed is what Commit returns once the journal, or a subscriber that it
// waits for, has been closed.
var ErrClosed = errors.New("the journal is closed")

// Options describe a subscriber.
type Options struct {
	Name   string // in log lines
	Topics Topic
	// Events and Bytes bound the queue: 16,384 events, 32 MiB.
	Events, Bytes int
	// Every collects events for so long before they are handled; zero handles
	// them at once.
	Every time.Duration
	// Required has Commit wait until Handle has returned, and fail as it does.
	Required bool
	// Handle receives events in the order in which they were published, and how
	// many were lost before them. It is never called twice at a time. It must
	// not change the events, and not keep the slice. Its error matters to
	// Commit alone: Handle reports it itself.
	Handle func(events []Event, lost int) error
}

// A Journal publishes events. It is safe for concurrent use. A nil Journal has
// no subscribers.
type Journal struct {
	log    *slog.Logger
	wanted atomic.Uint32 // the topics that some subscriber wants
	list   atomic.Pointer[[]*Subscription]

	mu sync.Mutex // changes of the list
}

// New returns a journal, which reports losses to the log.
func New(log *slog.Logger) *Journal {
	j := &Journal{log: log}
	j.list.Store(&[]*Subscription{})
	return j
}

// Wants reports whether an event of the topic has a subscriber. Who publishes
// asks first, so that an event that no one wants costs nothing.
func (j *Journal) Wants(t Topic) bool { return j != nil && Topic(j.wanted.Load())&t != 0 }

// Publish hands an event to its subscribers. It never waits. The event must not
// be changed afterwards.
func (j *Journal) Publish(e Event) {
	if j == nil {
		return
	}
	for _, s := range *j.list.Load() {
		if s.options.Topics&e.Topic() != 0 {
			s.put(e, nil)
		}
	}
}

// Commit publishes an event and waits for the subscribers that require it. An
// error says that one of them could not handle the event, or that ctx ended.
func (j *Journal) Commit(ctx context.Context, e Event) error {
	if j == nil {
		return nil
	}
	for _, s := range *j.list.Load() {
		if s.options.Topics&e.Topic() == 0 {
			continue
		}
		if !s.options.Required {
			s.put(e, nil)
			continue
		}
		handled := make(chan error, 1)
		if err := s.put(e, handled); err != nil {
			return err
		}
		select {
		case err := <-handled:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Subscribe begins to call options.Handle. The caller closes the Subscription.
func (j *Journal) Subscribe(options Options) *Subscription {
	if options.Events == 0 {
		options.Events = defaultEvents
	}
	if options.Bytes == 0 {
		options.Bytes = defaultBytes
	}
	s := &Subscription{journal: j, options: options, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	go s.work()
	j.change(func(list []*Subscription) []*Subscription { return append(list, s) })
	return s
}

// change replaces the list of subscribers.
func (j *Journal) change(how func([]*Subscription) []*Subscription) {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := how(slices.Clone(*j.list.Load()))
	var wanted Topic
	for _, s := range list {
		wanted |= s.options.Topics
	}
	j.list.Store(&list)
	j.wanted.Store(uint32(wanted))
}

// Lost returns how many events each subscriber has lost, by name.
func (j *Journal) Lost() map[string]uint64 {
	lost := map[string]uint64{}
	if j == nil {
		return lost
	}
	for _, s := range *j.list.Load() {
		s.mu.Lock()
		lost[s.options.Name] += s.ever
		s.mu.Unlock()
	}
	return lost
}

// A Subscription is one subscriber's queue.
type Subscription struct {
	journal *Journal
	options Options
	wake    chan struct{} // the queue is no longer empty
	hurry   chan struct{} // someone waits for what is in the queue
	closing chan struct{}
	done    chan struct{} // all was handled

	mu      sync.Mutex
	queue   []Event
	bytes   int
	waiting []chan<- error // for what is in the queue
	lost    int            // since Handle was last told
	ever    uint64         // lost in all
	closed  bool
}

// put adds an event to the queue. handled, if not nil, receives one answer once
// the event has been handled.
func (s *Subscription) put(e Event, handled chan<- error) error {
	size := e.size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if len(s.queue) >= s.options.Events || s.bytes+size > s.options.Bytes && len(s.queue) > 0 {
		s.lost++
		s.ever++
		signal(s.hurry)
		return ErrLost
	}
	s.queue = append(s.queue, e)
	s.bytes += size
	if len(s.queue) == 1 {
		signal(s.wake)
	}
	if handled != nil {
		s.waiting = append(s.waiting, handled)
		signal(s.hurry)
	}
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// work handles what is put into the queue, until it is closed and empty.
func (s *Subscription) work() {
	defer close(s.done)
	for {
		select {
		case <-s.wake:
			s.collect()
		case <-s.closing:
			s.handle()
			return
		}
		s.handle()
	}
}

// collect gives more events the time to arrive.
func (s *Subscription) collect() {
	if s.options.Every == 0 {
		return
	}
	timer := time.NewTimer(s.options.Every)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hurry:
	case <-s.closing:
	}
}

// handle hands the queue to its subscriber.
func (s *Subscription) handle() {
	s.mu.Lock()
	events, waiting, lost := s.queue, s.waiting, s.lost
	s.queue, s.waiting, s.bytes, s.lost = nil, nil, 0, 0
	s.mu.Unlock()
	if lost > 0 {
		s.journal.log.Warn("a subscriber of the journal was too slow and has lost events", "subscriber", s.options.Name, "events", lost)
	}
	var err error
	if len(events) > 0 || lost > 0 {
		err = s.options.Handle(events, lost)
	}
	for _, w := range waiting {
		w <- err
	}
}

// Flush waits until everything that was published before is handled, or ctx ends.
func (s *Subscription) Flush(ctx context.Context) error {
	handled := make(chan error, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.waiting = append(s.waiting, handled)
	signal(s.wake)
	signal(s.hurry)
	s.mu.Unlock()
	select {
	case err := <-handled:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close handles what is in the queue, and waits for that. It is idempotent.
func (s *Subscription) Close() {
	s.journal.change(func(list []*Subscription) []*Subscription {
		return slices.DeleteFunc(list, func(one *Subscription) bool { return one == s })
	})
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	<-s.done
}
