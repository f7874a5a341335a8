package app

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

// approvals constructs the questions of a process.
func (a *App) approvals(events *journal.Journal, rules *toolpolicy.Rules) *approval.Book {
	return approval.New(approval.Config{
		Timeout: a.Settings.Approvals.Timeout, Records: a.state(store.Approvals), Log: a.Log,
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
// calls.
func (a *App) FindApprovals(ctx context.Context) *Approvals {
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
	lost, err := approval.Reap(a.state(store.Approvals))
	if err != nil {
		out.Problems = append(out.Problems, err.Error())
	}
	out.Lost = append(out.Lost, lost...)
	slices.SortFunc(out.Open, func(a, b approval.Question) int { return a.Since.Compare(b.Since) })
	return out
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
