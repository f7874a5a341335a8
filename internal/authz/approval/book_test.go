package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

// asker asks a Book on behalf of code, in a bubble of synctest.
type asker struct {
	*testing.T
	*Book
	principal authz.Principal
	why       authz.Decision
	answers   []chan outcome
	end       context.CancelCauseFunc // of what a server asks
}

type outcome struct {
	authz.Answer
	err error
}

func newAsker(t *testing.T, c Config) *asker {
	c.Log = slog.New(slog.DiscardHandler)
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Minute
	}
	p := authz.Local("tests")
	p.Request, p.Session, p.SessionKey, p.Connection = "run-1", "work", "work", "conn-1"
	return &asker{T: t, Book: New(c), principal: p, why: because}
}

func writeFile(path, content string) authz.CallTool {
	arguments, _ := json.Marshal(map[string]string{"path": path, "content": content})
	return authz.CallTool{Server: &authz.Server{Name: "filesystem"}, Tool: "write_file", Arguments: arguments}
}

var because = authz.Decision{Effect: authz.Ask, Rule: "tools", Reason: errors.New("it writes")}

// call has code make a call, and waits until it waits.
func (a *asker) call(ctx context.Context, action authz.Action) chan outcome {
	c := make(chan outcome, 1)
	p, why := a.principal, a.why
	go func() {
		answer, err := a.Ask(ctx, p, action, why)
		c <- outcome{answer, err}
	}()
	synctest.Wait()
	a.answers = append(a.answers, c)
	return c
}

// writes has code write files 1 to n, all with the same content.
func (a *asker) writes(n int) {
	for i := range n {
		a.call(a.Context(), writeFile(fmt.Sprintf("/%d", i+1), "x"))
	}
}

// tally says of each call so far: y allowed, n refused, e no answer, . waits.
func (a *asker) tally() string {
	synctest.Wait()
	var b strings.Builder
	for i, c := range a.answers {
		select {
		case o := <-c:
			c <- o
			a.answers[i] = c
			switch {
			case o.err != nil:
				b.WriteByte('e')
			case o.Allowed:
				b.WriteByte('y')
			default:
				b.WriteByte('n')
			}
		default:
			b.WriteByte('.')
		}
	}
	return b.String()
}

// TestEvents: a question is published once it was put to people, and how it ended.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		j := journal.New(slog.New(slog.DiscardHandler))
		events := j.Subscribe(journal.Options{Topics: journal.Questions, Handle: func(events []journal.Event, _ int) error {
			for _, e := range events {
				switch e := e.(type) {
				case *journal.Asked:
					got = append(got, fmt.Sprintf("%s asked %s.%s by %s, %d", e.Execution, e.Server, e.Item, e.Rule, e.Calls))
				case *journal.Answered:
					got = append(got, fmt.Sprintf("answered %t by %s %q, %d after %s", e.Allowed, e.By, e.Words, e.Calls, e.Took))
				}
			}
			return nil
		}})
		a := newAsker(t, Config{Journal: j})
		a.writes(3)
		time.Sleep(time.Second)
		a.say(Answer{Choice: Waiting})
		a.writes(2)
		time.Sleep(time.Second)
		a.say(Answer{Choice: No, Words: "not now"})
		a.writes(1)
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		a.call(ctx, writeFile("/x", "x"))
		cancel() // before it was put to anyone
		synctest.Wait()
		events.Close()
		want := []string{
			"run-1 asked filesystem.write_file by tools, 3", `answered true by the test "", 3 after 1s`,
			"run-1 asked filesystem.write_file by tools, 2", `answered false by the test "not now", 2 after 1s`,
			"run-1 asked filesystem.write_file by tools, 1", `answered false by  "", 1 after 5m0s`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// one returns the only open question.
func (a *asker) one() Question {
	a.Helper()
	list := a.List()
	if len(list) != 1 {
		a.Fatalf("got %d questions, want one", len(list))
	}
	q, err := a.Get(list[0].ID)
	if err != nil {
		a.Fatal(err)
	}
	return q
}

// say answers the only open question, as it is.
func (a *asker) say(with Answer) Outcome {
	a.Helper()
	q := a.one()
	with.ID, with.Revision, with.By = q.ID, q.Revision, "the test"
	out, err := a.Answer(with)
	if err != nil {
		a.Fatal(err)
	}
	return out
}

func (a *asker) want(tally string) {
	a.Helper()
	if got := a.tally(); got != tally {
		a.Errorf("got calls %s, want %s", got, tally)
	}
}

func TestLoopIsOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{Mask: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }})
		for i := range 40 {
			a.call(t.Context(), writeFile(fmt.Sprintf("/%d", i), "hunter2 \u202e<\n"))
		}
		q := a.one()
		if q.Revision != 40 || q.Waiting != 40 || len(q.Calls) != 40 {
			t.Fatalf("got revision %d, %d waiting, %d rows, want 40", q.Revision, q.Waiting, len(q.Calls))
		}
		if want := []string{`content = "*** \u{202e}<\n"`}; !slices.Equal(q.Fixed, want) {
			t.Errorf("fixed: got %q, want %q", q.Fixed, want)
		}
		if !slices.Equal(q.Varies, []string{"path"}) || q.Calls[39][0] != `"/39"` {
			t.Errorf("got %q with last row %q, want the paths", q.Varies, q.Calls[39])
		}
		if got, want := a.Waiting("run-1"), "waiting for approval of filesystem.write_file (40 calls): sallyport approvals"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := a.Waiting("run-2"); got != "" {
			t.Errorf("another execution waits for %q", got)
		}
		a.say(Answer{Choice: Waiting})
		a.want(strings.Repeat("y", 40))
		if n := len(a.List()); n != 0 {
			t.Errorf("%d questions are left", n)
		}
	})
}

// TestCoverage: what each answer covers, of five calls that wait and of later
// ones: of the same content, of another one, by another execution of the session,
// and by another session.
func TestCoverage(t *testing.T) {
	for _, tt := range []struct {
		answer                Answer
		waiting, later, scope string
	}{
		{Answer{Choice: ThisCall}, "y....", "....", "this call"},
		{Answer{Choice: Waiting}, "yyyyy", "....", "the calls that waited"},
		{Answer{Choice: Next, Count: 2}, "yy...", "....", "the next 2 alike"},
		{Answer{Choice: Next, Count: 5}, "yyyyy", "....", "the next 5 alike"},
		{Answer{Choice: Next, Count: 6}, "yyyyy", "y...", "the next 6 alike"},
		{Answer{Choice: Next, Count: 9}, "yyyyy", "y...", "the next 9 alike"},
		{Answer{Choice: Next, Count: 9, Vary: []string{"content"}}, "yyyyy", "yy..", "the next 9 alike"},
		{Answer{Choice: ThisTool}, "yyyyy", "yy..", "all calls of this tool in this execution"},
		{Answer{Choice: Session}, "yyyyy", "yyy.", "all calls of this tool in this session"},
		{Answer{Choice: No, Words: "not these"}, "nnnnn", "....", "the calls that waited"},
		{Answer{Choice: NoTool, Words: "never"}, "nnnnn", "nn..", "all calls of this tool in this execution"},
	} {
		t.Run(fmt.Sprint(tt.answer.Choice, tt.answer.Count, len(tt.answer.Vary)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsker(t, Config{})
				ctx, cancel := context.WithCancel(t.Context())
				a.writes(5)
				a.say(tt.answer)
				a.want(tt.waiting)
				if first := <-a.answers[0]; first.Scope != tt.scope || first.By != "the test" || first.Words != tt.answer.Words {
					t.Errorf("got %+v, want the scope %q and the words %q", first, tt.scope, tt.answer.Words)
				}
				a.answers = nil
				a.call(ctx, writeFile("/6", "x"))
				a.call(ctx, writeFile("/7", "y"))
				a.principal.Request = "run-2"
				a.call(ctx, writeFile("/8", "x"))
				a.principal.Request, a.principal.SessionKey = "run-3", "work#another-client"
				a.call(ctx, writeFile("/9", "x"))
				a.want(tt.later)
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestAnswersEnd: an answer for an execution or a session ends with it, and covers
// no other tool.
func TestAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a.writes(1)
		a.say(Answer{Choice: ThisTool})
		other := writeFile("/2", "x")
		other.Tool = "edit_file"
		a.call(ctx, other)
		a.want("y.")
		a.Ended("run-1")
		a.call(ctx, writeFile("/3", "x"))
		a.want("y..")
		for range 2 {
			q := a.List()[0]
			if _, err := a.Answer(Answer{ID: q.ID, Revision: 1, Choice: Session}); err != nil {
				t.Fatal(err)
			}
		}
		a.want("yyy")
		a.SessionEnded("work")
		a.call(ctx, other)
		a.want("yyy.")
		cancel()
		synctest.Wait()
	})
}

// TestRevisions: an answer covers what its revision showed. Calls that came later
// are the next question.
func TestRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{})
		a.writes(3)
		seen := a.one()
		a.writes(2)
		out, err := a.Answer(Answer{ID: seen.ID, Revision: seen.Revision, Choice: Waiting, By: "one"})
		if err != nil || out.Calls != 3 || out.Waiting != 2 {
			t.Fatalf("got %+v, %v, want 3 calls answered and 2 waiting", out, err)
		}
		a.want("yyy..")
		next := a.one()
		if next.ID == seen.ID || next.Revision != 2 || out.Next != next.ID {
			t.Errorf("got question %s, want another one, %s", next.Address(), out.Next)
		}
		// The first answer counts, and later ones hear of it.
		_, err = a.Answer(Answer{ID: seen.ID, Revision: 5, Choice: No, By: "two"})
		var answered *AnsweredError
		if !errors.As(err, &answered) || !strings.Contains(err.Error(), "allowed (the calls that waited) by one") {
			t.Errorf("got %v, want who answered", err)
		}
		for _, wrong := range []Answer{
			{ID: next.ID, Revision: 3, Choice: Waiting}, {ID: next.ID, Choice: Waiting}, {ID: next.ID, Revision: 2, Choice: "yes"},
			{ID: next.ID, Revision: 2, Choice: Next}, {ID: next.ID, Revision: 2, Choice: Always}, {ID: next.ID, Revision: 2, Choice: Next, Count: 3, Vary: []string{"pth"}}, {ID: "none", Revision: 1, Choice: Waiting},
		} {
			if out, err := a.Answer(wrong); err == nil {
				t.Errorf("%+v: got %+v, want an error", wrong, out)
			}
		}
		a.want("yyy..")
		a.say(Answer{Choice: No})
		a.want("yyynn")
	})
}

func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{Timeout: time.Minute})
		a.writes(1)
		time.Sleep(30 * time.Second)
		a.writes(1)
		time.Sleep(30 * time.Second)
		a.want("e.")
		if q := a.one(); q.Waiting != 1 || q.Revision != 2 {
			t.Errorf("got %d waiting at revision %d, want 1 at 2", q.Waiting, q.Revision)
		}
		time.Sleep(30 * time.Second)
		a.want("ee")
		if o := <-a.answers[0]; !strings.Contains(o.err.Error(), "no answer came within 1m0s") {
			t.Errorf("got %v", o.err)
		}
		if n := len(a.List()); n != 0 {
			t.Errorf("%d questions outlive their calls", n)
		}
		none := newAsker(t, Config{})
		none.config.Timeout = 0
		if _, err := none.Ask(t.Context(), none.principal, writeFile("/", ""), because); err == nil || !strings.Contains(err.Error(), "approvals.timeout") {
			t.Errorf("without a timeout: got %v", err)
		}
	})
}

// TestFlood: code cannot have more than 16 questions open, or one that cannot be
// shown.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		for i := range maxOpen + 1 {
			action := writeFile("/", "")
			action.Tool = fmt.Sprint("tool-", i)
			a.call(ctx, action)
		}
		a.want(strings.Repeat(".", maxOpen) + "e")
		action := writeFile("/more", "")
		action.Tool = "tool-3" // joins one
		a.call(ctx, action)
		a.principal.Request = "run-2" // has its own
		a.call(ctx, action)
		a.want(strings.Repeat(".", maxOpen) + "e..")
		cancel()
		a.want(strings.Repeat("e", maxOpen+3))
		if n := len(a.List()); n != 0 {
			t.Errorf("%d questions outlive their calls", n)
		}
		a.answers = nil
		for name, arguments := range map[string]string{
			"too long": `{"a":"` + strings.Repeat("x", maxShown) + `"}`, "not UTF-8": "{\"a\":\"\xff\"}", "twice": `{"a":1,"a":2}`, "twice, escaped": `{"a":1,"\u0061":2}`,
			"many": "{" + strings.Repeat(`"a":1,`, maxArguments) + `"b":1}`,
		} {
			action := writeFile("/", "")
			action.Arguments = json.RawMessage(arguments)
			a.call(t.Context(), action)
			a.want("e")
			if t.Failed() {
				t.Fatal(name)
			}
			a.answers = nil
		}
	})
}

// TestSettles: a question is put to people when its loop has made its calls.
func TestSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan Question, 9)
		a := newAsker(t, Config{Notify: func(q Question) { told <- q }})
		for range 4 {
			a.writes(1)
			time.Sleep(settle / 2)
		}
		if len(told) != 0 {
			t.Fatal("people were asked while calls came")
		}
		time.Sleep(settle)
		a.writes(1)
		time.Sleep(time.Minute)
		if q := <-told; q.Waiting != 4 || len(told) != 0 {
			t.Fatalf("got %d calls and %d more questions, want one of 4 calls", q.Waiting, len(told))
		}
		q, err := a.Next(t.Context(), func(q *Question) bool { return q.Connection() == "conn-1" })
		if err != nil || q.Waiting != 5 {
			t.Errorf("got %d calls, %v, want 5", q.Waiting, err)
		}
		a.say(Answer{Choice: Waiting})
		select {
		case <-q.Ended():
		default:
			t.Error("the question has not ended")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if q, err := a.Next(ctx, func(*Question) bool { return true }); err == nil {
			t.Errorf("got %+v, want none", q)
		}
	})
}

// TestServer: a server that code asks for is shown complete, and approved by itself.
func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		request := authz.RequestServer{Server: &authz.Server{Name: "x"}, Command: []string{"npx", "x"}, Definition: json.RawMessage(`{"command":"npx","args":["x"],"env":{"A":"b"}}`)}
		a.call(ctx, request)
		a.call(ctx, request)
		q := a.List()[0]
		if len(a.List()) != 2 || !slices.Equal(q.Choices, []Choice{ThisCall, No}) {
			t.Errorf("got %d questions with choices %v, want two of yes and no", len(a.List()), q.Choices)
		}
		q, _ = a.Get(q.ID)
		if got := strings.Join(q.Fixed, "; "); got != `command = "npx"; args = ["x"]; env = {"A":"b"}` {
			t.Errorf("got %s, want the whole definition", got)
		}
		if _, err := a.Answer(Answer{ID: q.ID, Revision: 1, Choice: ThisTool}); err == nil {
			t.Error("an answer covers servers that were not shown")
		}
		if _, err := a.Answer(Answer{ID: q.ID, Revision: 1, Choice: ThisCall}); err != nil {
			t.Fatal(err)
		}
		a.want("y.")
		request.Definition = nil
		a.call(ctx, request)
		a.want("y.e")
		cancel()
		synctest.Wait()
	})
}

type rules struct {
	written []Rule
	err     error
}

func (r *rules) Propose(call authz.CallTool, _ authz.Verdict) (Rule, error) {
	return Rule{"policy.d/x.yaml", call.Server.Name + " " + call.Tool}, nil
}
func (r *rules) Write(rule Rule) error {
	if r.err == nil {
		r.written = append(r.written, rule)
	}
	return r.err
}

func TestAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rules{err: errors.New("disk full")}
		a := newAsker(t, Config{Rules: r})
		a.writes(2)
		q := a.one()
		if q.Always == nil || q.Always.Text != "filesystem write_file" {
			t.Fatalf("got %+v, want what would be written", q.Always)
		}
		if _, err := a.Answer(Answer{ID: q.ID, Revision: 2, Choice: Always}); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("got %v, want why no rule was written", err)
		}
		a.want("..")
		r.err = nil
		a.say(Answer{Choice: Always})
		a.want("yy")
		if len(r.written) != 1 || r.written[0] != *q.Always {
			t.Errorf("got %v written, want what was shown", r.written)
		}
		// From then on the rule decides: where it is removed, a person is asked.
		ctx, cancel := context.WithCancel(t.Context())
		a.call(ctx, writeFile("/3", "x"))
		a.want("yy.")
		cancel()
		synctest.Wait()
	})
}

// TestRecord: a process that is killed leaves which questions were open, and one
// that ends leaves nothing.
func TestRecord(t *testing.T) {
	dir := store.At(t.TempDir()).Area(store.Approvals)
	b := New(Config{Timeout: time.Minute, Records: dir, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	opened := b.Changed()
	p := authz.Local("tests")
	p.Request, p.Session = "run-9", "work"
	go func() {
		defer close(ended)
		_, _ = b.Ask(ctx, p, writeFile("/secret-path", "x"), because)
	}()
	<-opened
	for { // it is written right after that
		if names, err := dir.List(); err != nil {
			t.Fatal(err)
		} else if len(names) == 1 {
			break
		}
	}
	keep := func([]Lost) error { return nil }
	if lost, err := Reap(dir, keep); len(lost) != 0 || err != nil {
		t.Fatalf("got %v, %v of a process that lives", lost, err)
	}
	data, err := os.ReadFile(dir.Path(b.record.name + extension))
	if err != nil || strings.Contains(string(data), "secret-path") {
		t.Errorf("got %s, %v, want no arguments on disk", data, err)
	}
	b.record.unlock() // as the end of the process does
	full := errors.New("disk full")
	if lost, err := Reap(dir, func([]Lost) error { return full }); !errors.Is(err, full) || len(lost) != 1 {
		t.Errorf("got %v, %v, want the question and why it is not recorded", lost, err)
	}
	var kept []Lost
	record := func(l []Lost) error { kept = append(kept, l...); return nil }
	for range 2 { // it is recorded once, and stays
		if err := RecordLost(dir, record); err != nil {
			t.Error(err)
		}
	}
	lost, err := Reap(dir, record)
	if err != nil || len(lost) != 1 || lost[0].Name != "filesystem.write_file" || lost[0].Calls != 1 || lost[0].Process != os.Getpid() {
		t.Errorf("got %+v, %v, want the question again", lost, err)
	}
	if len(kept) != 1 || kept[0].End().Question != lost[0].ID {
		t.Errorf("got %+v to record, want %+v once", kept, lost)
	}
	if e := lost[0].End(); e.Killed != os.Getpid() || !e.Since.Equal(lost[0].Since) || e.Client != "tests" || e.Owner != "local" || e.Execution != "run-9" || e.Session != "work" ||
		e.Question != lost[0].ID || e.Action != "call_tool" || e.Server != "filesystem" || e.Item != "write_file" || e.Calls != 1 || e.Allowed || !strings.Contains(e.Reason, "none of its calls was sent") {
		t.Errorf("got the end %+v, want all that is known of it", e)
	}
	if lost, err := Reap(dir, keep); len(lost) != 0 || err != nil {
		t.Errorf("got %v, %v, want it reported once", lost, err)
	}
	cancel()
	<-ended
	b.Close()
	if names, err := dir.List(); len(names) != 0 || err != nil {
		t.Errorf("got %v, %v, want no records", names, err)
	}
}

func TestShown(t *testing.T) {
	for value, want := range map[string]string{
		`"a\u00e4\u200b\n"`:               `"aä\u{200b}\n"`,
		`"\ud800"`:                        `"\ud800"`,
		`{ "a" : [1,  9007199254740993]}`: `{"a": [1, 9007199254740993]}`,
		"\"\x7f\"":                        `"\u{7f}"`,
		`"\\\""`:                          `"\\\""`,
		`1e400`:                           `1e400`,
	} {
		if got := shown(value); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}
