package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/authz/audit"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

// approvals constructs the questions of a process.
func (a *App) approvals(events *journal.Journal, log *audit.Log, rules *toolpolicy.Rules) *approval.Book {
	return approval.New(approval.Config{
		Timeout: a.Settings.Approvals.Timeout, Records: a.state(store.Approvals), Log: a.Log,
		Lost:  func(lost []approval.Lost) error { return recordLost(events, log, lost) },
		Rules: a.approvalRules(rules), Notify: a.notifier(), Mask: a.secrets.Text, Journal: events,
	})
}

// Approvals are the open questions of all running processes.
type Approvals struct {
	Open     []approval.Question
	Lost     []approval.Lost // that killed processes left
	Problems []string        // why some may be missing, for people

	all []*control.Client
	of  map[string][]*control.Client // by the ID of the question
}

// FindApprovals asks every running Sallyport of the user. The questions have no
// calls. What killed processes left is reported once.
func (a *App) FindApprovals(ctx context.Context) *Approvals {
	out := a.OpenApprovals(ctx)
	lost, err := approval.Reap(a.state(store.Approvals), a.recordLost)
	if err != nil {
		out.Problems = append(out.Problems, err.Error())
	}
	out.Lost = append(out.Lost, lost...)
	return out
}

// OpenApprovals is FindApprovals without what killed processes left.
func (a *App) OpenApprovals(ctx context.Context) *Approvals {
	s := a.running(ctx)
	out := &Approvals{Open: []approval.Question{}, Lost: []approval.Lost{}, Problems: s.Problems, of: map[string][]*control.Client{}}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, c := range s.clients {
		out.all = append(out.all, c)
		asking.Go(func() {
			q, err := c.Questions(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Problems = append(out.Problems, err.Error())
				return
			}
			out.Open, out.Lost = append(out.Open, q.Open...), append(out.Lost, q.Lost...)
			for _, one := range q.Open {
				out.of[one.ID] = append(out.of[one.ID], c)
			}
		})
	}
	asking.Wait()
	slices.SortFunc(out.Open, func(a, b approval.Question) int { return a.Since.Compare(b.Since) })
	return out
}

// RecordLost has the audit log record questions that killed processes left, before it
// is read.
func (a *App) RecordLost() error {
	return approval.RecordLost(a.state(store.Approvals), a.recordLost)
}

// recordLost has the audit log, if one is kept, record questions that killed processes
// left.
func (a *App) recordLost(lost []approval.Lost) error {
	events := journal.New(a.Log)
	log, err := a.audit(events)
	if err != nil || log == nil {
		return err
	}
	defer log.Close()
	return recordLost(events, log, lost)
}

// recordTimeout bounds how long the end of lost questions may take to be recorded.
const recordTimeout = 5 * time.Second

// recordLost publishes the end of questions, and waits until the audit log has it; nil
// is no log.
func recordLost(events *journal.Journal, log *audit.Log, lost []approval.Lost) error {
	for i := range lost {
		events.Publish(lost[i].End())
	}
	if log == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	if err := log.Flush(ctx); err != nil {
		return fmt.Errorf("questions of killed processes are not yet in the audit log: %w", err)
	}
	return nil
}

// Get returns a question with its calls.
func (f *Approvals) Get(ctx context.Context, id string) (q approval.Question, err error) {
	err = f.ask(id, func(c *control.Client) (err error) {
		q, err = c.Question(ctx, id)
		return err
	})
	return q, err
}

// Answer answers a question.
func (f *Approvals) Answer(ctx context.Context, a approval.Answer) (out approval.Outcome, err error) {
	err = f.ask(a.ID, func(c *control.Client) (err error) {
		out, err = c.Answer(ctx, a)
		return err
	})
	return out, err
}

// ask asks the process that has a question, or may know what became of it.
func (f *Approvals) ask(id string, do func(*control.Client) error) error {
	clients := f.of[id]
	if len(clients) == 0 {
		clients = f.all
	}
	why := approval.ErrUnknown
	for _, c := range clients {
		err := do(c)
		if err == nil || len(clients) == 1 {
			return err
		}
		if !errors.Is(err, approval.ErrUnknown) {
			why = err
		}
	}
	return why
}
