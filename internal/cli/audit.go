package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz/audit"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

type auditCmd struct {
	List   auditListCmd   `cmd:"" default:"withargs" help:"List what was done, the newest last."`
	Show   auditShowCmd   `cmd:"" help:"Show everything that is recorded of a call, an execution or a record."`
	Tail   auditTailCmd   `cmd:"" help:"Print records as they are written, until Ctrl-C."`
	Export auditExportCmd `cmd:"" help:"Write records for other programs: JSON lines, or events of the OCSF."`
	Verify auditVerifyCmd `cmd:"" help:"Check that no record was changed, removed or cut."`
}

// auditFilter are the flags that select records.
type auditFilter struct {
	Since   sinceFlag `help:"Only records since then: how long ago (24h, 7d), or a date (2026-11-01)." placeholder:"TIME"`
	Server  string    `help:"Only records of this server." placeholder:"NAME" complete:"servers"`
	Tool    string    `help:"Only records of this tool." placeholder:"NAME"`
	Session string    `help:"Only records of this session." placeholder:"NAME"`
	Client  string    `help:"Only records of this client, as it calls itself." placeholder:"NAME"`
}

// filter selects by the names that the log has. A server that is not known any more
// is in it, too.
func (f *auditFilter) filter(u *ui) (audit.Filter, error) {
	out := audit.Filter{Since: f.Since.Time, Server: f.Server, Tool: f.Tool, Session: f.Session, Client: f.Client}
	if f.Server == "" && f.Tool == "" {
		return out, nil
	}
	lib, _, err := u.OpenLibrary(nil)
	if err != nil {
		return out, err
	}
	defer lib.Close()
	if name, err := readServer(lib.Snapshot(), f.Server); err != nil {
		return out, err
	} else if name != "" {
		out.Server = name
	}
	if server, name, err := readTool(lib.Snapshot(), f.Tool); err != nil {
		return out, err
	} else if server != "" {
		out.Server, out.Tool = cmp.Or(out.Server, server), name
	}
	var found []string
	for _, e := range u.KnownTools(lib) {
		if e.Listing != nil && (out.Server == "" || out.Server == e.Name) {
			if t, err := tool.Find(e.Listing.Tools, out.Tool); err == nil && t != nil && !slices.Contains(found, t.Name) {
				found = append(found, t.Name)
			}
		}
	}
	if len(found) == 1 {
		out.Tool = found[0]
	}
	return out, nil
}

type auditListCmd struct {
	auditFilter
	Status string `help:"Only what ended so: ok, failed, denied, or pending, which is not over or whose end is not recorded." enum:"ok,failed,denied,pending," default:""`
	Limit  int    `help:"How many at most, the newest; 0 for all." default:"50" placeholder:"N"`
	JSON   bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*auditListCmd) Help() string {
	return `A call and what came of it are one line; a question to a person and its answer are one each. 'sallyport audit show' takes what is under ID.

Example:
  sallyport audit list --since 24h --server github
  sallyport audit list --status denied`
}

// Run implements the command.
func (c *auditListCmd) Run(u *ui) error {
	if err := u.readAudit(); err != nil {
		return err
	}
	f, err := c.filter(u)
	if err != nil {
		return err
	}
	f.Result = c.Status
	list, err := audit.Entries(u.AuditDir(), f, max(0, c.Limit))
	if err != nil {
		return err
	}
	if c.JSON {
		if list == nil {
			list = []audit.Entry{}
		}
		return u.printJSON(struct {
			Entries []audit.Entry `json:"entries"`
		}{list})
	}
	if len(list) == 0 {
		fmt.Fprintln(u.stdio.Out, "Nothing like that is recorded"+map[bool]string{true: ": audit.mode is off"}[u.Settings.Audit.Mode == settings.AuditOff]+".")
		return nil
	}
	t := u.table("ID", "TIME", "CLIENT", "SESSION", "WHAT", "RESULT")
	for _, e := range list {
		t.Row(strconv.FormatUint(e.Seq, 10), e.Time.Local().Format("2006-01-02 15:04:05"), invisible.Line(e.Client), invisible.Line(e.Session), invisible.Line(e.Title()), invisible.Line(resultOf(e)))
	}
	return t.Write(u.stdio.Out)
}

// readAudit is configure for commands that read the log, of which nothing is to be
// missing that is known.
func (u *ui) readAudit() error {
	err := u.configure()
	if err == nil {
		if wrong := u.RecordLost(); wrong != nil {
			u.Log.Warn(wrong.Error())
		}
	}
	return err
}

// resultOf says how something went, and why.
func resultOf(e audit.Entry) string {
	result := e.Result()
	switch {
	case e.Type == audit.Answer:
		return result + ": " + e.Answered()
	case e.Allowed != nil && !*e.Allowed:
		return strings.TrimSuffix(result+": "+e.Rule, ": ")
	case e.Outcome != nil:
		return strings.TrimSuffix(result+": "+e.Outcome.Failure, ": ")
	}
	return strings.TrimSuffix(result+": "+firstLine(e.Error+e.Cause), ": ")
}

type auditShowCmd struct {
	ID   string `arg:"" help:"The number of a record, as 'sallyport audit list' has it, or what a record has as execution, call or question."`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*auditShowCmd) Help() string {
	return `Example:
  sallyport audit show 812
  sallyport audit show k3vq.5        # a question, as it was shown, and its answer
  sallyport audit show 812 --json | jq .records[].execution`
}

// Run implements the command.
func (c *auditShowCmd) Run(u *ui) error {
	if err := u.readAudit(); err != nil {
		return err
	}
	f := audit.Filter{ID: c.ID}
	records := []*audit.Record{}
	calls := map[string]bool{}
	err := audit.NewReader(u.AuditDir(), time.Time{}).Each(func(_ []byte, r *audit.Record) {
		if f.Selects(r) || r.Call != "" && calls[r.Call] {
			records = append(records, r)
			calls[r.Call] = true
		}
	})
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fmt.Errorf("the audit log has nothing under %s: 'sallyport audit list' shows what it has", printable(c.ID))
	}
	if c.JSON {
		return u.printJSON(struct {
			Records []*audit.Record `json:"records"`
		}{records})
	}
	for i, r := range records {
		if i > 0 {
			fmt.Fprintln(u.stdio.Out)
		}
		if err := u.printJSON(r); err != nil {
			return err
		}
	}
	return nil
}

type auditTailCmd struct {
	auditFilter
	Lines int  `short:"n" help:"How many earlier records to begin with." default:"10" placeholder:"N"`
	JSON  bool `help:"Print JSON lines." name:"json"`
}

// Help implements kong's HelpProvider.
func (*auditTailCmd) Help() string {
	return `Example:
  sallyport audit tail
  sallyport audit tail --server github --json -n 0 | jq .item`
}

// tailEvery is how often the log is looked at. Records are written in batches.
const tailEvery = 300 * time.Millisecond

// Run implements the command.
func (c *auditTailCmd) Run(u *ui) error {
	if err := u.readAudit(); err != nil {
		return err
	}
	f, err := c.filter(u)
	if err != nil {
		return err
	}
	reader := audit.NewReader(u.AuditDir(), f.Since)
	var lines []string
	keep := max(0, c.Lines)
	for first := true; ; first = false {
		err := reader.Each(func(line []byte, r *audit.Record) {
			if !f.Selects(r) {
				return
			}
			lines = append(lines, c.line(line, r))
			if first && len(lines) > keep {
				lines = lines[1:]
			}
		})
		if err != nil {
			return err
		}
		for _, line := range lines {
			if _, err := io.WriteString(u.stdio.Out, line+"\n"); err != nil {
				return err
			}
		}
		lines = nil
		select {
		case <-u.ctx.Done():
			return u.interrupted()
		case <-time.After(tailEvery):
		}
	}
}

// line is a record for a terminal.
func (c *auditTailCmd) line(line []byte, r *audit.Record) string {
	if c.JSON {
		return plainJSON(string(line))
	}
	text := fmt.Sprintf("%s  %-15s  %s", r.Time.Local().Format("15:04:05"), r.Type, r.Title())
	entry := audit.Entry{Record: r}
	switch {
	case r.Type == audit.Outcome && r.Failure != "":
		text += ": failed: " + r.Failure
	case r.Type == audit.Outcome:
		text += fmt.Sprintf(": ok, %d bytes, %g ms", r.Bytes, r.TookMs)
	case r.Type == audit.Decision && entry.Result() == audit.Denied:
		text += ": denied: " + r.Reason
	case r.Type == audit.Decision:
		text += ": allowed"
	case r.Type == audit.Answer:
		text += ": " + r.Answered()
	}
	if r.Client != "" {
		text += " (" + r.Client + ")"
	}
	return invisible.Line(text)
}

type auditExportCmd struct {
	auditFilter
	Format string `help:"jsonl: the records as they are; ocsf: events of the Open Cybersecurity Schema Framework 1.8, a line each." enum:"jsonl,ocsf" default:"jsonl"`
}

// Help implements kong's HelpProvider.
func (*auditExportCmd) Help() string {
	return `Calls, questions about them and executions are events of the class API Activity (6003), the starts and ends of sessions and servers of Application Lifecycle (6002). The whole record is under unmapped.

Example:
  sallyport audit export --format ocsf --since 7d > events.jsonl`
}

// Run implements the command.
func (c *auditExportCmd) Run(u *ui) error {
	if err := u.readAudit(); err != nil {
		return err
	}
	f, err := c.filter(u)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(u.stdio.Out)
	var failed error
	err = audit.NewReader(u.AuditDir(), f.Since).Each(func(line []byte, r *audit.Record) {
		if failed != nil || !f.Selects(r) {
			return
		}
		if c.Format == "ocsf" {
			if line, failed = audit.OCSF(line, r, u.Version); failed != nil {
				return
			}
		}
		_, failed = out.WriteString(plainJSON(string(bytes.TrimSpace(line))) + "\n")
	})
	if failed == nil {
		failed = out.Flush()
	}
	if err != nil {
		return err
	}
	return failed
}

type auditVerifyCmd struct {
	Expect string `help:"Hash of a record, as an earlier 'sallyport audit verify' has printed it: it must be in the log." placeholder:"HASH"`
	JSON   bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*auditVerifyCmd) Help() string {
	return `Checks each record's hash, that each follows the one before, and that the log begins and ends where its sealed head says. Exits with 1 if something is wrong. Who can read the key in the folder of the log can write another log with a head that fits: note the last hash in another place, and give it to --expect later.

Example:
  sallyport audit verify
  sallyport audit verify --expect 3b1f9d…`
}

// Run implements the command.
func (c *auditVerifyCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	r, err := audit.Verify(u.AuditDir(), c.Expect)
	if err != nil {
		return err
	}
	if c.JSON {
		err = u.printJSON(r)
	} else {
		var text strings.Builder
		for _, p := range r.Problems {
			fmt.Fprintln(&text, "FAIL ", invisible.Line(p.String()))
		}
		for _, n := range r.Notes {
			fmt.Fprintln(&text, "note ", invisible.Line(n))
		}
		if r.Lost > 0 {
			fmt.Fprintf(&text, "warn  events that could not be recorded: %d\n", r.Lost)
		}
		switch {
		case len(r.Problems) > 0:
		case r.Records == 0:
			fmt.Fprintln(&text, "There is no audit log.")
		default:
			fmt.Fprintf(&text, "ok    %d records since %s, and no gap\nThe last one is %d: %s\n", r.Records, r.Since.Local().Format("2006-01-02 15:04"), r.Last, r.Hash)
		}
		for line := range strings.Lines(text.String()) {
			if _, err = io.WriteString(u.stdio.Out, u.paintMark(line)); err != nil {
				return err
			}
		}
	}
	if err == nil && len(r.Problems) > 0 {
		err = exitError(exitFailed)
	}
	return err
}

// auditDiagnosis is what doctor says about the audit log.
type auditDiagnosis struct {
	Mode    string        `json:"mode"`
	Failure string        `json:"failure,omitempty"` // why it cannot be written, or read
	Report  *audit.Report `json:"report,omitempty"`
}

// diagnoseAudit looks at the log after code has run.
func (u *ui) diagnoseAudit(ctx context.Context, sys *app.System) auditDiagnosis {
	d := auditDiagnosis{Mode: u.Settings.Audit.Mode}
	if sys.Audit == nil {
		return d
	}
	err := sys.Audit.Flush(ctx)
	if err == nil {
		d.Report, err = audit.Verify(u.AuditDir(), "")
	}
	if err != nil {
		d.Failure = err.Error()
	}
	return d
}

func (d *auditDiagnosis) print(w io.Writer) {
	switch {
	case d.Failure != "":
		fmt.Fprintf(w, "FAIL  the audit log cannot be written: %s\n", d.Failure)
	case d.Report == nil:
		fmt.Fprintf(w, "note  no audit log is kept (audit.mode is %s)\n", d.Mode)
	case len(d.Report.Problems) > 0:
		fmt.Fprintf(w, "FAIL  the audit log was changed: %s ('sallyport audit verify')\n", d.Report.Problems[0])
	case d.Report.Lost > 0:
		fmt.Fprintf(w, "warn  audit log: %d events could not be recorded\n", d.Report.Lost)
	default:
		fmt.Fprintf(w, "ok    audit log (%s): records: %d\n", d.Mode, d.Report.Records)
	}
}
