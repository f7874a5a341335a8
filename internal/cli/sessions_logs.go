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

	"github.com/sallyport/sallyport/internal/session/sessionlog"
)

// lookAgain is how often a followed log is checked.
const lookAgain = 200 * time.Millisecond

type sessionsLogsCmd struct {
	Name   string `arg:"" help:"The session." complete:"sessions"`
	Follow bool   `help:"Keep printing new output until the session is removed." short:"f"`
	Tail   int    `help:"Only the last N executions." placeholder:"N"`
	Code   bool   `help:"Print the source of the executions instead of their output."`
	Raw    bool   `help:"Print the exact bytes that code wrote to a file or a pipe. A terminal gets text and colours only."`
	JSON   bool   `help:"Print the entries of the log, a JSON object on each line." name:"json"`
}

// Help implements kong's HelpProvider.
func (*sessionsLogsCmd) Help() string {
	return `Output is kept on disk as long as the session exists, up to the size in the setting sessions.logs; the oldest is dropped first. Control characters, which could affect the terminal, are shown as \x1b and the like; with --raw, a file or a pipe gets them as they are, and a terminal is protected as it is from 'sallyport run'. What a server tells about a call, in log messages and reports on its progress, stands between the output as [server NAME] and a line; code and agents do not get it, nor does --raw print it.

Examples:
  sallyport sessions logs analysis --tail 1
  sallyport sessions logs analysis --follow
  sallyport sessions logs analysis --code >what-it-ran.py`
}

// Run implements the command.
func (c *sessionsLogsCmd) Run(u *ui) error {
	s, err := u.sessions()
	if err != nil {
		return err
	}
	k, err := s.Find(c.Name)
	if err != nil {
		return err
	}
	if k.Log == "" {
		if u.Settings.Sessions.Logs == 0 {
			return errors.New("logs are turned off (setting sessions.logs)")
		}
		return errors.New("the session has no log: nothing has run in it yet, or its process keeps no logs (sessions.logs)")
	}
	open := sessionlog.ReadOutput
	if c.Code {
		open = sessionlog.ReadCode
	}
	out := &logPrinter{cmd: c, app: u}
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
		case <-u.ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
		if _, err := os.Stat(k.Log); err != nil {
			if err := r.Read(out.print); err != nil { // what came last
				return err
			}
			fmt.Fprintln(u.stdio.Err, "The session was removed.")
			return nil
		}
	}
}

// before returns how many executions precede the requested ones.
func (c *sessionsLogsCmd) before(r *sessionlog.Reader) (int, error) {
	defer r.Close()
	n := 0
	err := r.Read(func(e sessionlog.Entry) error {
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
	app *ui
	// For --tail: how many executions to skip, and whether the first of the
	// others has begun.
	skip  int
	begun bool
	// open: the last line that was printed has not ended.
	open bool
}

func (p *logPrinter) print(e sessionlog.Entry) error {
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
	if text := e.Text + string(e.Bytes); text != "" {
		p.open = !strings.HasSuffix(text, "\n")
	}
	switch {
	case e.Code != "":
		_, err = fmt.Fprintf(w, "# %s, execution %d\n%s\n", e.Time.Local().Format(time.DateTime), e.Execution, strings.TrimRight(p.text(e.Code), "\n"))
	case e.Text != "":
		_, err = io.WriteString(w, p.text(e.Text))
	case len(e.Bytes) > 0:
		_, err = io.WriteString(w, p.text(string(e.Bytes)))
	case e.Told != "" && !p.cmd.Raw:
		err = p.told(e)
	case e.LeftOut > 0:
		_, err = fmt.Fprintf(w, "\n[%d bytes are missing from the log: they came faster than the disk could write them]\n", e.LeftOut)
	case e.Reset:
		_, err = fmt.Fprintln(w, "# The session was reset.")
	case e.Lost != "":
		_, err = fmt.Fprintln(w, "# The session's state was lost:", printable(e.Lost))
	}
	return err
}

// told prints what a server told, on a line of its own.
func (p *logPrinter) told(e sessionlog.Entry) error {
	line := "[" + printable(e.Told) + "]\n"
	if e.Server != "" {
		line = "[server " + printable(e.Server) + "] " + printable(e.Told) + "\n"
	}
	if p.open {
		line = "\n" + line
	}
	p.open = false
	_, err := io.WriteString(p.app.stdio.Out, line)
	return err
}

// text returns what code wrote, in the form in which it may be shown.
func (p *logPrinter) text(s string) string {
	if p.cmd.Raw {
		return s
	}
	return shown(s)
}

// shown escapes untrusted text, so that only line feeds, tabs, and carriage
// returns before line feeds move a terminal's cursor.
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
