package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"sallyport/internal/session"
)

// lookAgain is how often a log is looked at that is followed.
const lookAgain = 200 * time.Millisecond

type sessionsLogsCmd struct {
	Name   string `arg:"" help:"The session."`
	Follow bool   `help:"Go on with what is written from now on, until the session is removed." short:"f"`
	Tail   int    `help:"The last executions only." placeholder:"N"`
	Code   bool   `help:"What the executions ran, instead of what they wrote."`
	Raw    bool   `help:"The very bytes that code wrote, escape sequences included."`
	JSON   bool   `help:"Print the entries of the log, a JSON object on each line." name:"json"`
}

// Help implements kong's HelpProvider.
func (*sessionsLogsCmd) Help() string {
	return `Output is kept on disk for as long as the session lives, up to the setting sessions.logs; the oldest goes first. Control characters, which could do things to a terminal, are shown as \x1b and the like; with --raw, a file or a pipe gets them as they are.

Examples:
  sallyport sessions logs analysis --tail 1
  sallyport sessions logs analysis --follow
  sallyport sessions logs analysis --code >what-it-ran.py`
}

// Run implements the command.
func (c *sessionsLogsCmd) Run(a *app) error {
	s, err := a.sessions()
	if err != nil {
		return err
	}
	k, err := s.find(c.Name)
	if err != nil {
		return err
	}
	if k.Log == "" {
		if a.settings.Sessions.Logs == 0 {
			return errors.New("no logs are kept: the setting sessions.logs is off")
		}
		return errors.New("it has no log: nothing ran in it yet, or its Sallyport keeps none (sessions.logs)")
	}
	open := session.Outputs
	if c.Code {
		open = session.Codes
	}
	out := &logPrinter{cmd: c, app: a}
	if c.Tail > 0 {
		if out.skip, err = c.before(open(k.Log)); err != nil {
			return err
		}
	}
	r := open(k.Log)
	defer r.Close()
	for {
		if err := r.Read(out.print); err != nil {
			return err
		}
		if !c.Follow {
			return nil
		}
		select {
		case <-a.ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
		if _, err := os.Stat(k.Log); err != nil {
			fmt.Fprintln(a.stdio.Err, "The session was removed.")
			return nil
		}
	}
}

// before is how many executions come before those that are asked for.
func (c *sessionsLogsCmd) before(r *session.LogReader) (int, error) {
	defer r.Close()
	n := 0
	err := r.Read(func(e session.Entry) error {
		if e.Start || e.Code != "" {
			n++
		}
		return nil
	})
	return max(0, n-c.Tail), err
}

// logPrinter prints entries.
type logPrinter struct {
	cmd *sessionsLogsCmd
	app *app
	// With --tail: executions to pass over, and whether the first of the
	// others has begun.
	skip  int
	begun bool
}

func (p *logPrinter) print(e session.Entry) error {
	if p.skip > 0 || p.skip == 0 && p.cmd.Tail > 0 && !p.begun {
		if !e.Start && e.Code == "" {
			return nil
		}
		if p.skip > 0 {
			p.skip--
			return nil
		}
		p.begun = true
	}
	w := p.app.stdio.Out
	if p.cmd.JSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(e)
	}
	var err error
	switch {
	case e.Code != "":
		_, err = fmt.Fprintf(w, "# %s, execution %d\n%s\n", e.Time.Local().Format(time.DateTime), e.Execution, strings.TrimRight(p.text(e.Code), "\n"))
	case e.Text != "":
		_, err = io.WriteString(w, p.text(e.Text))
	case len(e.Bytes) > 0:
		_, err = io.WriteString(w, p.text(string(e.Bytes)))
	case e.LeftOut > 0:
		_, err = fmt.Fprintf(w, "\n[%d bytes are not in the log: they came faster than the disk takes them]\n", e.LeftOut)
	case e.Reset:
		_, err = fmt.Fprintln(w, "# The session was reset.")
	case e.Lost != "":
		_, err = fmt.Fprintln(w, "# The session's state was lost:", printable(e.Lost))
	}
	return err
}

// text is what code wrote, as it may be shown.
func (p *logPrinter) text(s string) string {
	if p.cmd.Raw {
		return s
	}
	return shown(s)
}

// shown is a text of code's in which nothing moves a terminal's cursor but line
// feeds, tabs and returns before line feeds.
func shown(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	if !movesCursor(s) && strings.ToValidUTF8(s, "") == s {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == unicode.ReplacementChar && s[i] != 0xef:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\r':
			b.WriteByte('\n')
		case movesCursor(string(r)):
			if r < 0x100 {
				fmt.Fprintf(&b, `\x%02x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
