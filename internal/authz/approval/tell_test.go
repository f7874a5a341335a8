package approval

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/journal"
)

// TestTold: the journal has each question as those saw it who were asked, and each end
// of it before the calls go on.
func TestTold(t *testing.T) {
	settled := func() { time.Sleep(time.Second) }
	for _, test := range []struct {
		name string
		do   func(a *asker)
		want []string
	}{
		{"as it was put", func(a *asker) {
			a.writes(2)
			settled()
			a.say(Answer{Choice: Waiting})
		}, []string{"asked .2 2 calls [1 2]", "answered .2 true by the test, the calls that waited, 2 calls"}},
		{"grown", func(a *asker) {
			a.writes(1)
			settled()
			a.call(a.Context(), writeFile("/2", "x"))
			a.say(Answer{Choice: Waiting})
		}, []string{"asked .1 1 calls [1]", "asked .2 2 calls [1 2]", "answered .2 true by the test, the calls that waited, 2 calls"}},
		{"grown, and the answer to what it was", func(a *asker) {
			a.writes(1)
			settled()
			a.call(a.Context(), writeFile("/2", "x"))
			a.answer(1, Answer{Choice: No, Words: "why"})
			settled()
			a.say(Answer{Choice: Waiting})
		}, []string{
			"asked .1 1 calls [1]", "answered .1 false by the test, the calls that waited, 1 calls why",
			"asked .1 1 calls [2]", "answered .1 true by the test, the calls that waited, 1 calls",
		}},
		{"only the first of those that were shown", func(a *asker) {
			a.writes(3)
			settled()
			a.say(Answer{Choice: ThisCall})
			a.say(Answer{Choice: No})
		}, []string{
			"asked .3 3 calls [1 2 3]", "answered .3 true by the test, this call, 1 calls",
			"asked .2 2 calls [2 3]", "answered .2 false by the test, the calls that waited, 2 calls",
		}},
		{"before it settled", func(a *asker) {
			a.writes(2)
			a.answer(1, Answer{Choice: ThisTool})
		}, []string{"asked .1 1 calls [1]", "answered .1 true by the test, all calls of this tool in this execution, 1 calls"}},
		{"shrunk", func(a *asker) {
			ctx, cancel := context.WithCancel(a.Context())
			a.call(ctx, writeFile("/gone", "x"))
			a.writes(1)
			settled()
			cancel()
			synctest.Wait()
			a.say(Answer{Choice: Waiting})
		}, []string{"asked .2 2 calls [gone 1]", "asked .2 1 calls [1]", "answered .2 true by the test, the calls that waited, 1 calls"}},
		{"no answer in time", func(a *asker) {
			a.writes(2)
			time.Sleep(time.Hour)
		}, []string{"asked .2 2 calls [1 2]", "answered .0 false by , , 2 calls no answer came within 5m0s (approvals.timeout)"}},
		{"cancelled", func(a *asker) {
			ctx, cancel := context.WithCancel(a.Context())
			a.call(ctx, writeFile("/1", "x"))
			settled()
			cancel()
		}, []string{"asked .1 1 calls [1]", "answered .0 false by , , 1 calls the execution ended, or its calls were cancelled"}},
		{"the client is gone", func(a *asker) {
			ctx, cancel := context.WithCancelCause(a.Context())
			a.call(ctx, writeFile("/1", "x"))
			settled()
			cancel(errors.New("the client has gone"))
		}, []string{"asked .1 1 calls [1]", "answered .0 false by , , 1 calls the client has gone"}},
		{"covered by another answer", func(a *asker) {
			a.writes(1)
			settled()
			first := a.one()
			other := writeFile("/2", "x")
			a.principal.Request = "run-2"
			a.call(a.Context(), other)
			settled()
			_, err := a.Answer(Answer{ID: first.ID, Revision: 1, Choice: Session, By: "the test"})
			if err != nil {
				a.Fatal(err)
			}
		}, []string{
			"asked .1 1 calls [1]", "asked .1 1 calls [2]", "answered .1 true by the test, all calls of this tool in this session, 1 calls",
			"answered .0 true by the test, all calls of this tool in this session, 1 calls an answer to another question covers its calls",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				j := journal.New(slog.New(slog.DiscardHandler))
				paths := regexp.MustCompile(`"/(\w+)"`)
				events := j.Subscribe(journal.Options{Topics: journal.Questions, Handle: func(events []journal.Event, _ int) error {
					for _, e := range events {
						switch e := e.(type) {
						case *journal.Asked:
							var shown []string
							for _, m := range paths.FindAllStringSubmatch(e.Shown, -1) {
								shown = append(shown, m[1])
							}
							got = append(got, fmt.Sprintf("asked .%d %d calls %v", e.Revision, e.Calls, shown))
							if want := fmt.Sprintf("%s.%d: filesystem.write_file, ", e.Question, e.Revision); !strings.HasPrefix(e.Shown, want) || strings.Contains(e.Shown, " left") || e.Audit != authz.AuditHash || e.Rule != "tools" {
								t.Errorf("got %+v, want %q shown without the time that is left", e, want)
							}
						case *journal.Answered:
							got = append(got, strings.TrimSpace(fmt.Sprintf("answered .%d %t by %s, %s, %d calls %s%s", e.Revision, e.Allowed, e.By, e.Scope, e.Calls, e.Words, e.Reason)))
						}
					}
					return nil
				}})
				a := newAsker(t, Config{Journal: j})
				a.why.Verdict.Audit = authz.AuditHash
				test.do(a)
				synctest.Wait()
				events.Close()
				if !slices.Equal(got, test.want) {
					t.Errorf("got  %q\nwant %q", got, test.want)
				}
			})
		})
	}
}

// answer answers a revision of the only open question.
func (a *asker) answer(revision int, with Answer) {
	a.Helper()
	with.ID, with.Revision, with.By = a.one().ID, revision, "the test"
	if _, err := a.Book.Answer(with); err != nil {
		a.Fatal(err)
	}
}

// TestToldBeforeCallsGoOn: an answer is published before any call receives it, so that a
// strict log has it before the decision that follows.
func TestToldBeforeCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(slog.New(slog.DiscardHandler))
		told := make(chan *journal.Answered, 1)
		events := j.Subscribe(journal.Options{Topics: journal.Questions, Handle: func(events []journal.Event, _ int) error {
			for _, e := range events {
				if e, ok := e.(*journal.Answered); ok {
					told <- e
				}
			}
			return nil
		}})
		a := newAsker(t, Config{Journal: j})
		a.call(t.Context(), writeFile("/1", "x"))
		q := a.one()
		receives := make(chan authz.Answer) // which no one does yet
		a.mu.Lock()
		waits := a.find(q.ID).calls[0].answer
		a.find(q.ID).calls[0].answer = receives
		a.mu.Unlock()
		done := make(chan error, 1)
		go func() {
			_, err := a.Book.Answer(Answer{ID: q.ID, Revision: 1, Choice: Waiting, By: "the test"})
			done <- err
		}()
		synctest.Wait()
		select {
		case e := <-told:
			if !e.Allowed || e.By != "the test" {
				t.Errorf("got %+v, want the answer", e)
			}
		default:
			t.Error("got nothing published, want the answer")
		}
		waits <- <-receives
		if err := <-done; err != nil {
			t.Error(err)
		}
		a.want("y")
		events.Close()
	})
}
