package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/invisible"
)

// questions are those of a Book, or of the Books of all running processes.
type questions interface {
	Next(context.Context, func(*approval.Question) bool) (approval.Question, error)
	// Get returns an open question as it is now; the error says why it is not open.
	Get(id string) (approval.Question, error)
	// Changed is closed when a question is opened, grows or ends.
	Changed() <-chan struct{}
	Answer(approval.Answer) (approval.Outcome, error)
}

// watchEvery is how often processes are asked for news.
const watchEvery = 500 * time.Millisecond

// polled are the questions of all running processes.
type polled struct {
	u    *ui
	ctx  context.Context
	tell func(problems []string) // that are new

	mu       sync.Mutex
	found    *app.Approvals
	problems string // of found
	changed  chan struct{}
	// The last question of Next, and the process that has it.
	last  approval.Question
	place *app.Approvals
}

// poll asks all running processes for their questions until ctx is done. It tells why
// some may be missing.
func (u *ui) poll(ctx context.Context, tell func(problems []string)) *polled {
	p := &polled{u: u, ctx: ctx, tell: tell, changed: make(chan struct{})}
	p.look()
	go func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.look()
			case <-ctx.Done():
				return
			}
		}
	}()
	return p
}

// look asks once.
func (p *polled) look() {
	found := p.u.OpenApprovals(p.ctx)
	problems := strings.Join(found.Problems, "\n")
	if p.ctx.Err() != nil && p.found != nil {
		return // what was found may be incomplete
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if problems != p.problems {
		p.tell(found.Problems)
		p.problems = problems
	}
	same := p.found != nil && slices.EqualFunc(p.found.Open, found.Open, func(a, b approval.Question) bool {
		return a.ID == b.ID && a.Revision == b.Revision && a.Settled == b.Settled
	})
	if p.found = found; !same {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// open returns how many questions for people were open at last.
func (p *polled) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(forPeople(p.found.Open))
}

// Next implements questions.
func (p *polled) Next(ctx context.Context, wanted func(*approval.Question) bool) (approval.Question, error) {
	for {
		p.mu.Lock()
		found, changed := p.found, p.changed
		p.mu.Unlock()
		for _, head := range found.Open {
			if !head.Settled || !wanted(&head) {
				continue
			}
			if q, err := found.Get(ctx, head.ID); err == nil { // else it was answered meanwhile
				p.mu.Lock()
				p.last, p.place = q, found
				p.mu.Unlock()
				return q, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return approval.Question{}, context.Cause(ctx)
		}
	}
}

// Get implements questions. A process that does not answer for a moment still has
// its question.
func (p *polled) Get(id string) (approval.Question, error) {
	p.mu.Lock()
	found, last := p.found, p.last
	if last.ID == id {
		found = p.place
	}
	p.mu.Unlock()
	q, err := found.Get(p.ctx, id)
	switch {
	case err == nil, errors.Is(err, control.ErrRefused), errors.Is(err, control.ErrGone), errors.Is(err, approval.ErrUnknown), last.ID != id:
		return q, err
	}
	return last, nil
}

// Changed implements questions.
func (p *polled) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// Answer implements questions.
func (p *polled) Answer(a approval.Answer) (approval.Outcome, error) {
	p.mu.Lock()
	found := p.found
	if p.last.ID == a.ID {
		found = p.place
	}
	p.mu.Unlock()
	return found.Answer(p.ctx, a)
}

// A dialog asks questions on a terminal, one after the other.
type dialog struct {
	*ui
	from questions
	keys *keyboard
	out  io.Writer
	by   string // what asks
	fill *filling
}

// errBackground: other programs have the terminal.
var errBackground = errors.New("the terminal belongs to another program")

// answers are what a person types.
var answers = []struct {
	key, what string
	choice    approval.Choice
}{
	{"a", "allow these %d", approval.Waiting}, {"1", "allow the first", approval.ThisCall}, {"n COUNT", "allow so many alike", approval.Next},
	{"t", "all of this tool in this execution", approval.ThisTool}, {"s", "in this session", approval.Session}, {"w", "always", approval.Always},
	{"d [WHY]", "deny", approval.No}, {"D [WHY]", "deny all of this tool in this execution", approval.NoTool},
}

// ask shows a question, again when it grows, until it is answered, here or elsewhere,
// or left open. It returns the revision that was shown last. The error is io.EOF at
// the end of the input, errBackground, or that of ctx.
func (d *dialog) ask(ctx context.Context, q approval.Question) (shown int, err error) {
	defer d.keys.end()
	d.fill = nil
	more := true
	for more && err == nil {
		if !d.keys.begin(func() { _, _ = io.WriteString(d.out, q.Text()+d.prompt(&q)) }) {
			return q.Revision, errBackground
		}
		shown = q.Revision
		q, more, err = d.follow(ctx, q)
	}
	return shown, err
}

// prompt says how a question can be answered.
func (d *dialog) prompt(q *approval.Question) string {
	if q.Asks != nil {
		return d.promptOfServer(q)
	}
	var says []string
	for _, a := range answers {
		if slices.Contains(q.Choices, a.choice) {
			what := a.what
			if a.choice == approval.Waiting {
				what = fmt.Sprintf(what, q.Waiting)
			}
			if q.More > 0 && (a.choice == approval.Waiting || a.choice == approval.No) {
				what += fmt.Sprintf(", and %d more alike", q.More)
			}
			says = append(says, a.key+": "+what)
		}
	}
	text := fmt.Sprintf("  %s; Enter: leave it open\n? ", strings.Join(says, "; "))
	if q.Always != nil {
		text = fmt.Sprintf("  \"always\" writes to %s:\n    %s\n", invisible.Line(q.Always.File), strings.ReplaceAll(strings.TrimSpace(invisible.Escape(q.Always.Text)), "\n", "\n    ")) + text
	}
	return text
}

// follow waits for what becomes of a question that is shown. It returns the question
// that is to be shown next, if more.
func (d *dialog) follow(ctx context.Context, q approval.Question) (next approval.Question, more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type typed struct {
		line string
		err  error
	}
	lines, wanted := make(chan typed), make(chan struct{}, 1)
	go func() { // it reads no line for another question: see keyboard.begin
		for range wanted {
			line, err := d.keys.line(ctx)
			select {
			case lines <- typed{line, err}:
			case <-ctx.Done():
			}
		}
	}()
	defer close(wanted)
	wanted <- struct{}{}
	grown := q.Revision
	var still <-chan time.Time // a moment after it has grown
	for {
		changed := d.from.Changed()
		now, gone := d.from.Get(q.ID)
		switch {
		case gone != nil:
			d.say("\n%s.\n\n", over(q.ID, gone))
			return q, false, nil
		case now.Revision > grown: // calls that come one after the other are shown at once
			grown, still = now.Revision, time.After(watchEvery)
		}
		select {
		case t := <-lines:
			switch {
			case ctx.Err() != nil:
				return q, false, ctx.Err()
			case t.err != nil:
				d.say("\n")
				return q, false, t.err
			case d.answered(&q, t.line):
				return q, false, nil
			}
			d.say("%s", d.prompt(&q))
			wanted <- struct{}{}
		case <-changed:
		case <-still:
			d.say("\n%s has grown: it has %d calls now.\n\n", q.ID, now.Waiting)
			return now, true, nil
		case <-ctx.Done():
			if _, gone := d.from.Get(q.ID); gone != nil {
				d.say("\n%s.", over(q.ID, gone))
			}
			d.say("\n")
			return q, false, context.Cause(ctx)
		}
	}
}

// answered passes on what was typed, and reports whether the question is done with.
func (d *dialog) answered(q *approval.Question, line string) bool {
	if q.Asks != nil {
		return d.answeredServer(q, strings.TrimSpace(line))
	}
	key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if key == "" {
		return true
	}
	rest = strings.TrimSpace(rest)
	a := approval.Answer{ID: q.ID, Revision: q.Revision, By: byMe(d.by)}
	for _, one := range answers {
		if name, _, _ := strings.Cut(one.key, " "); name == key {
			a.Choice = one.choice
		}
	}
	switch a.Choice {
	case "":
		d.say("%s: choose one of these answers.\n", printable(key))
		return false
	case approval.Next:
		a.Count, _ = strconv.Atoi(rest) // 0 is refused
	default:
		a.Words = rest
	}
	return d.send(q, a)
}

// send answers a question, and reports whether it is done with.
func (d *dialog) send(q *approval.Question, a approval.Answer) bool {
	out, err := d.from.Answer(a)
	if err == nil {
		d.say("%s.\n\n", out.Text)
		return true
	}
	if _, gone := d.from.Get(q.ID); gone != nil {
		d.say("%s.\n\n", over(q.ID, gone))
		return true
	}
	d.say("%s.\n\n", invisible.Escape(err.Error()))
	return false
}

func (d *dialog) say(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// over says what became of a question, given why it is not open.
func over(id string, why error) string {
	switch {
	case errors.Is(why, approval.ErrUnknown):
		return id + " was withdrawn: its execution ended, or there was no answer in time"
	case errors.Is(why, control.ErrGone):
		return id + " is gone: its process has ended, and nothing was sent"
	}
	return id + " was " + invisible.Escape(why.Error())
}

// byMe names who answers with a command.
func byMe(command string) string {
	me, err := user.Current()
	if err != nil {
		return command
	}
	return approval.By(command+",", me.Username)
}
