package cli

import (
	"cmp"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/library"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// loginLine is the user's login at a server as list and show print it.
type loginLine struct {
	State string `json:"state"` // signed in, signed out, ended or unknown
	// Problem says why it is unknown.
	Problem string `json:"problem,omitempty"`
	*oauth.Status
}

// markLogins fills in the logins at the servers that can have one.
func (u *ui) markLogins(lines []serverLine, lib *library.Library) {
	manager, done := u.Logins(lib)
	defer done()
	for i := range lines {
		if _, defined := lib.Snapshot().Get(lines[i].Name); defined && lines[i].State != "rejected" {
			lines[i].Login = loginAt(manager, lines[i].Name)
		}
	}
}

// loginAt returns the login at a server, and nil if that can have none.
func loginAt(manager *upstream.Manager, name string) *loginLine {
	login, ok := manager.Login(name)
	if !ok {
		return nil
	}
	status, found, err := login.Status()
	switch {
	case err != nil:
		return &loginLine{State: "unknown", Problem: err.Error()}
	case !found:
		return &loginLine{State: "signed out"}
	case status.Ended != "":
		return &loginLine{State: "ended", Status: &status}
	}
	return &loginLine{State: "signed in", Status: &status}
}

func minute(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

// describeLogin says as whom and until when the user is signed in.
func describeLogin(s oauth.Status) string {
	text := "signed in"
	if s.Account != "" {
		text += " as " + invisible.Line(s.Account)
	}
	switch {
	case s.Renewable:
		text += ", renewed without you"
	case !s.Expires.IsZero():
		text += " until " + minute(s.Expires)
	}
	return text
}

// short is the login in a table.
func (l *loginLine) short() string {
	switch {
	case l == nil:
		return ""
	case l.Problem != "":
		return "unknown: " + invisible.Line(l.Problem)
	case l.Status == nil:
		return l.State
	case l.Ended != "":
		return "login ended: " + invisible.Line(l.Ended)
	}
	text := cmp.Or(invisible.Line(l.Account), l.State)
	if !l.Renewable && !l.Expires.IsZero() {
		text += " until " + minute(l.Expires)
	}
	return text
}

// rows prints all of a login.
func (l *loginLine) rows(name string, row func(what, value string)) {
	if l == nil {
		return
	}
	again := ": sallyport servers login " + terminal.ShellWord(invisible.Line(name))
	if l.Status == nil {
		if l.Problem == "" {
			row("login", l.State+again)
		} else {
			row("login", l.short())
		}
		return
	}
	if l.Ended == "" {
		row("login", describeLogin(*l.Status))
	} else {
		row("login", "ended: "+invisible.Line(l.Ended)+again)
		row("signed in as", invisible.Line(l.Account))
	}
	row("signed in at", invisible.Line(l.Issuer))
	row("signed in on", minute(l.Since))
	row("scopes", invisible.Line(strings.Join(l.Scopes, " ")))
	if len(l.Wanted) > 0 {
		row("scopes wanted", invisible.Line(strings.Join(l.Wanted, " "))+again)
	}
	if !l.Expires.IsZero() {
		row("token until", minute(l.Expires))
	}
}
