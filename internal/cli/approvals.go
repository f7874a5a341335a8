package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
)

type approvalsCmd struct {
	List    approvalsListCmd    `cmd:"" default:"withargs" help:"List the calls that wait for approval, with their arguments, and what servers ask you."`
	Show    approvalsShowCmd    `cmd:"" help:"Show one question as it is now."`
	Approve approvalsApproveCmd `cmd:"" help:"Let calls go out, or answer a server."`
	Deny    approvalsDenyCmd    `cmd:"" help:"Refuse calls, or to answer a server."`
}

// approvals asks all running processes.
func (u *ui) approvals() (*app.Approvals, error) {
	if err := u.configure(); err != nil {
		return nil, err
	}
	f := u.FindApprovals(u.ctx)
	u.missing(f.Problems)
	return f, nil
}

// missing says why questions may be missing.
func (u *ui) missing(problems []string) {
	for _, p := range problems {
		fmt.Fprintln(u.stdio.Err, "sallyport:", invisible.Escape(p))
	}
}

type approvalsListCmd struct {
	Watch bool `help:"Go on showing questions as they come, and ask for answers on a terminal, until Ctrl-C or Ctrl-D."`
	JSON  bool `help:"Print JSON; with --watch, one object a line." name:"json"`
}

// Help implements kong's HelpProvider.
func (*approvalsListCmd) Help() string {
	return `Calls wait for approval where a rule of the policy says "ask", and where code asks for a server that is not configured. Calls of one tool that wait at the same time are one question. Its name has a revision, such as k3vq.40: an answer covers the calls that this revision showed, and later ones are asked about again.

A server that works on a call may ask you something, too. What you answer goes to that server alone, and no log has it. What a server asks of the client itself, such as its model, is in the output of --json alone: you can only refuse it.

A client that can show forms asks its user, too, and so does 'sallyport run' on a terminal. The first answer counts. With --watch, a question that was answered elsewhere makes room for the next, and what was typed for one question answers no other; one that you leave open is shown again when it has grown. No answer within approvals.timeout means no.

Examples:
  sallyport approvals
  sallyport approvals --watch
  sallyport approvals list --json | jq -r '.open[].address'`
}

// Run implements the command.
func (c *approvalsListCmd) Run(u *ui) error {
	if c.Watch {
		return c.watch(u)
	}
	f, err := u.approvals()
	if err != nil {
		return err
	}
	open, listed := f.Open[:0:0], f.Open
	if !c.JSON {
		listed = forPeople(listed)
	}
	for _, q := range listed {
		whole, err := f.Get(u.ctx, q.ID)
		if err == nil { // else it was answered meanwhile
			open = append(open, whole)
		}
	}
	if c.JSON {
		out := struct {
			Open []addressed     `json:"open"`
			Lost []approval.Lost `json:"lost"`
		}{[]addressed{}, f.Lost}
		for _, q := range open {
			out.Open = append(out.Open, addressed{q.Address(), q})
		}
		return u.printJSON(out)
	}
	for _, l := range f.Lost {
		fmt.Fprintf(u.stdio.Out, "Process %d was killed on or after %s while %s\n\n", l.Process, l.Since.Local().Format(time.DateTime), l.Text())
	}
	for _, q := range open {
		u.printQuestion(&q)
	}
	if len(open) == 0 {
		fmt.Fprintln(u.stdio.Out, "No call waits for approval.")
	}
	return nil
}

// addressed is a question in JSON, with what 'approve' and 'deny' want to be given.
type addressed struct {
	Address string `json:"address"`
	approval.Question
}

// printQuestion prints a question and how to answer it.
func (u *ui) printQuestion(q *approval.Question) {
	fmt.Fprint(u.stdio.Out, q.Text())
	var approve string
	if q.ForPeople() {
		approve = "sallyport approvals approve " + q.Address()
		if q.Asks != nil && len(q.Asks.Fields) > 0 {
			approve += " --answer NAME=VALUE"
		}
		approve += " | "
	}
	fmt.Fprintf(u.stdio.Out, "  %ssallyport approvals deny %s\n\n", approve, q.Address())
}

// watch shows questions as they come until the command ends, or its input.
func (c *approvalsListCmd) watch(u *ui) error {
	ctx, cancel := context.WithCancel(u.ctx)
	defer cancel()
	err := u.configure()
	if err != nil {
		return err
	}
	from := u.poll(ctx, u.missing)
	var d *dialog
	if keys := newKeyboard(u.stdio.In); keys != nil && !c.JSON && terminal.Real(u.stdio.Out) {
		d = &dialog{ui: u, from: from, keys: keys, out: u.stdio.Out, by: approvalsBy}
	}
	if !c.JSON && from.open() == 0 {
		fmt.Fprintln(u.stdio.Out, "No call waits for approval. Waiting for one; Ctrl-C ends this.")
	}
	seen := map[string]int{} // revisions, by ID
	for err == nil {
		var q approval.Question
		if q, err = c.next(ctx, from, d, seen); err != nil {
			break
		}
		seen[q.ID] = q.Revision
		switch {
		case c.JSON:
			err = u.printJSONLine(addressed{q.Address(), q})
		case d == nil:
			u.printQuestion(&q)
		default:
			if seen[q.ID], err = d.ask(ctx, q); errors.Is(err, errBackground) {
				u.printQuestion(&q)
				err = nil
			}
		}
	}
	switch {
	case u.ctx.Err() != nil:
		return u.interrupted()
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// next waits for a question that was not seen as it is. Lines that are typed
// meanwhile answer nothing; the end of the input is an error.
func (c *approvalsListCmd) next(ctx context.Context, from questions, d *dialog, seen map[string]int) (approval.Question, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d != nil && d.keys.begin(func() {}) {
		go func() {
			var err error
			for err == nil {
				_, err = d.keys.line(ctx)
			}
			cancel(err)
		}()
	}
	return from.Next(ctx, func(q *approval.Question) bool { return (c.JSON || q.ForPeople()) && seen[q.ID] < q.Revision })
}

// approvalsBy is what answers of these commands are called.
const approvalsBy = "sallyport approvals"

type approvalsShowCmd struct {
	ID   string `arg:"" help:"The question, as 'sallyport approvals' lists it." complete:"questions"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*approvalsShowCmd) Help() string {
	return `Example:
  sallyport approvals show k3vq`
}

// Run implements the command.
func (c *approvalsShowCmd) Run(u *ui) error {
	f, err := u.approvals()
	if err != nil {
		return err
	}
	id, _, _ := strings.Cut(c.ID, ".")
	q, err := f.Get(u.ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", printable(c.ID), err)
	case c.JSON:
		return u.printJSON(addressed{q.Address(), q})
	}
	u.printQuestion(&q)
	return nil
}

type approvalsApproveCmd struct {
	ID     string   `arg:"" help:"The question and its revision, as 'sallyport approvals' lists them." complete:"questions"`
	For    string   `help:"What may go out: call (the first one), waiting, next (see --count), tool (all calls of the tool in this execution), session, or always (writes a rule). Default: all calls that were shown." enum:",call,waiting,next,tool,session,always" default:"" complete:"none"`
	Count  int      `help:"How many calls with equal arguments may go out, with --for next." placeholder:"N"`
	Vary   []string `help:"Argument that may differ in those calls, besides those that differed in the question. Can be repeated." placeholder:"NAME" sep:"none"`
	Answer []string `help:"The value of a field of the form that a server asks you to fill in. Can be repeated; a field that takes several values takes them one by one." placeholder:"NAME=VALUE" sep:"none"`
	JSON   bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*approvalsApproveCmd) Help() string {
	return `Calls are alike if they are of the same tool and have equal values for the arguments that the question held fixed: those that were equal in all its calls.

A server that asks gets the values of --answer, and the defaults of its form for other fields. It gets nothing but what its form has fields for. Where it asks you to open an address, the command tells it that you do, and opens nothing.

Examples:
  sallyport approvals approve k3vq.40
  sallyport approvals approve k3vq.1 --for next --count 40 --vary path --vary content
  sallyport approvals approve k3vq.40 --for tool
  sallyport approvals approve m2xd.1 --answer branch=main --answer label=bug --answer label=ui`
}

// Run implements the command.
func (c *approvalsApproveCmd) Run(u *ui) error {
	if (c.Count != 0 || len(c.Vary) > 0) != (c.For == "next") {
		return errors.New("--for next and --count go together; --vary goes with them")
	}
	if c.For != "" && len(c.Answer) > 0 {
		return errors.New("--for is for calls, and --answer for what a server asks")
	}
	return u.answer(c.ID, c.JSON, approval.Answer{Choice: approval.Choice(c.For), Count: c.Count, Vary: c.Vary}, c.Answer)
}

type approvalsDenyCmd struct {
	ID      string `arg:"" help:"The question and its revision, as 'sallyport approvals' lists them." complete:"questions"`
	Because string `help:"Why, in your words. The code gets them with the error." placeholder:"WORDS"`
	Tool    bool   `help:"Refuse all calls of this tool in this execution."`
	JSON    bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*approvalsDenyCmd) Help() string {
	return `The calls raise runtime.MCPError in the code, with your words. A server that asks learns no more than that you decline.

Examples:
  sallyport approvals deny k3vq.40 --because 'write to /tmp instead'
  sallyport approvals deny m2xd.1`
}

// Run implements the command.
func (c *approvalsDenyCmd) Run(u *ui) error {
	choice := approval.No
	if c.Tool {
		choice = approval.NoTool
	}
	return u.answer(c.ID, c.JSON, approval.Answer{Choice: choice, Words: c.Because}, nil)
}

// answer answers the question at an address. set are the values for a server.
func (u *ui) answer(address string, asJSON bool, a approval.Answer, set []string) error {
	id, revision, err := approval.ParseAddress(address)
	if err != nil {
		return err
	}
	f, err := u.approvals()
	if err != nil {
		return err
	}
	opens := ""
	if revision == 0 || a.Choice == "" {
		q, err := f.Get(u.ctx, id)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", printable(address), err)
		case revision == 0:
			return fmt.Errorf("name the revision that you saw: it is %s now ('sallyport approvals show %s')", q.Address(), id)
		}
		switch a.Choice = approval.Waiting; {
		case q.Asks != nil:
			if a.Result, err = replyWith(&q, set); err != nil {
				return fmt.Errorf("%s: %w", printable(address), err)
			}
			a.Choice, opens = approval.Reply, q.Asks.URL
		case len(set) > 0:
			return fmt.Errorf("%s is about calls: --answer is for what a server asks", printable(address))
		case !slices.Contains(q.Choices, a.Choice):
			a.Choice = approval.ThisCall
		}
	}
	a.ID, a.Revision, a.By = id, revision, byMe(approvalsBy)
	out, err := f.Answer(u.ctx, a)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", printable(address), err)
	case asJSON:
		return u.printJSON(out)
	}
	fmt.Fprintf(u.stdio.Out, "%s.\n", out.Text)
	if opens != "" {
		fmt.Fprintf(u.stdio.Out, "Now open %s\n", invisible.Line(opens))
	}
	return nil
}

// elsewhere lets the questions of a program be answered in another terminal, and
// asks them on this one if there is a dialog for that.
func (u *ui) elsewhere(sys *app.System, d *dialog, client string) (end func()) {
	ctx, cancel := context.WithCancel(u.ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		answer := sync.OnceValue(func() func() {
			return sys.Answer(func(p *control.Process) { p.Client = client }, nil)
		})
		asked := false
		first := func() {
			asked = true
			answer()
		}
		if d == nil {
			followQuestions(ctx, sys.Approvals, sys.Broker.ID(), func(text string) {
				first()
				fmt.Fprintln(u.stdio.Err, text)
			})
		} else {
			d.from = sys.Approvals
			d.attend(ctx, first, func(q *approval.Question) bool { return q.Connection() == sys.Broker.ID() })
		}
		if asked {
			answer()()
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		asking.Wait()
	})
}

// followQuestions tells of the questions of a client's code until ctx is done.
func followQuestions(ctx context.Context, book *approval.Book, connection string, tell func(text string)) {
	told := map[string]bool{}
	for {
		q, err := book.Next(ctx, func(q *approval.Question) bool { return q.ForPeople() && !told[q.ID] && q.Connection() == connection })
		if err != nil {
			return
		}
		told[q.ID] = true
		tell(waitingText(&q))
	}
}

// waitingText says that a question waits, where it is not asked.
func waitingText(q *approval.Question) string {
	what := "approval of " + q.Name()
	if q.Asks != nil {
		what = q.Name()
	}
	return fmt.Sprintf("sallyport: waiting for %s: answer in another terminal with 'sallyport approvals'", what)
}
