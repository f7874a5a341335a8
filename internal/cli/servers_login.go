package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/library"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

type serversLoginCmd struct {
	serversFlags
	Names     []string      `arg:"" optional:"" help:"The servers' names." complete:"url-servers"`
	All       bool          `help:"Sign in at all servers that want a login and have none, or whose login has ended."`
	NoBrowser bool          `help:"Open no browser: print the address, and read the address that the browser returns to from standard input."`
	Timeout   time.Duration `help:"How long a sign-in may take." placeholder:"TIME" default:"5m" type:"seconds"`
	JSON      bool          `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversLoginCmd) Help() string {
	return `Signs you in with OAuth at servers that have a url. The browser opens the page of the server's authorization server; when you have agreed there, it returns to this command. The tokens are stored encrypted, renewed when they expire, and sent to this server only: code and agents never see them. At a server where you are signed in, it signs you in again, for another account or for more scopes.

If the browser is on another computer, use --no-browser: visit the printed address there, and paste the address of the page that then cannot be reached.

Examples:
  sallyport servers login docs
  sallyport servers login docs --no-browser
  sallyport servers login --all`
}

// loginResult is what became of one sign-in.
type loginResult struct {
	Name  string        `json:"name"`
	Login *oauth.Status `json:"login,omitempty"`
	// Left says why there was no sign-in.
	Left  string `json:"left,omitempty"`
	Error string `json:"error,omitempty"`
}

// Run implements the command.
func (c *serversLoginCmd) Run(u *ui) error {
	lib, manager, done, err := u.openLogins(&c.serversFlags, c.Names, c.All)
	if err != nil {
		return err
	}
	defer done()
	names, err := signable(lib, manager, c.Names)
	if err != nil {
		return err
	}
	results, failed := []loginResult{}, []string{}
	for _, name := range names {
		r := loginResult{Name: name}
		status, left, err := c.signIn(u, manager, name)
		switch {
		case u.ctx.Err() != nil:
			return context.Cause(u.ctx)
		case err != nil && len(c.Names) == 1 && !c.JSON:
			return err
		case err != nil:
			r.Error = err.Error()
			failed = append(failed, printable(name))
			fmt.Fprintf(u.stdio.Err, "%s %s\n", u.paint(u.stdio.Err, terminal.Red, "sallyport:"), invisible.Escape(r.Error))
		case left != "":
			r.Left = left
			u.say("%s: %s.\n", printable(name), left)
		default:
			r.Login = &status
			u.say("%s: %s.\nTry it with: sallyport servers test %s\n", printable(name), describeLogin(status), terminal.ShellWord(invisible.Line(name)))
		}
		results = append(results, r)
		if errors.Is(err, errNothingPasted) {
			break // nor will be: the input has ended, or no one is there
		}
	}
	err = nil
	if c.JSON {
		err = u.printJSON(struct {
			Servers []loginResult `json:"servers"`
		}{results})
	} else if len(names) == 0 {
		u.say("There is no server to sign in at.\n")
	}
	if len(failed) > 0 && len(names) > 1 {
		fmt.Fprintf(u.stdio.Err, "sallyport: %d of %s failed: %s\n", len(failed), count(len(names), "server"), strings.Join(failed, ", "))
	}
	if err == nil && len(failed) > 0 {
		err = exitError(exitFailed)
	}
	return err
}

// say prints a line for people.
func (u *ui) say(format string, args ...any) {
	if !u.quiet {
		fmt.Fprintf(u.stdio.Out, format, args...)
	}
}

// openLogins returns the servers of a command line that names some of them or has
// --all, and the logins there. done closes both.
func (u *ui) openLogins(flags *serversFlags, names []string, all bool) (lib *library.Library, manager *upstream.Manager, done func(), err error) {
	if (len(names) > 0) == all {
		return nil, nil, nil, errors.New("give either servers or --all")
	}
	if lib, _, err = u.openLibrary(flags); err != nil {
		return nil, nil, nil, err
	}
	manager, closeManager := u.Logins(lib)
	return lib, manager, func() { closeManager(); lib.Close() }, nil
}

// signable returns the servers that were named, or all at which the user can sign in.
func signable(lib *library.Library, manager *upstream.Manager, texts []string) (names []string, err error) {
	if len(texts) == 0 {
		for _, d := range lib.Snapshot().Definitions {
			if _, ok := manager.Login(d.Name); ok && d.State() == "ready" {
				names = append(names, d.Name)
			}
		}
		return names, nil
	}
	for _, text := range texts {
		d, err := find(lib, text)
		if err != nil {
			return nil, err
		}
		l := serverLine{Name: d.Name, State: d.State()}
		if _, ok := manager.Login(d.Name); d.URL == "" || l.State == "ready" && !ok {
			return nil, withoutLogin(d)
		}
		if l.State != "ready" {
			return nil, fmt.Errorf("server %q is %s%s", d.Name, l.State, wayOut(l))
		}
		if !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

// withoutLogin says why a server has no login.
func withoutLogin(d upstream.Definition) error {
	switch {
	case d.URL == "":
		return fmt.Errorf("server %q is a program on this computer, which has no login: what it needs is in the env of its definition", d.Name)
	case slices.ContainsFunc(d.HeaderNames, func(name string) bool { return strings.EqualFold(name, "Authorization") }):
		return fmt.Errorf("the definition of server %q has an Authorization header (%s, line %d): that is sent, and OAuth is off; remove it to sign in", d.Name, printable(d.File), d.Line)
	}
	return fmt.Errorf(`the definition of server %q (%s, line %d) switches OAuth off ("oauth": false)`, d.Name, printable(d.File), d.Line)
}

// signIn signs the user in at one server, or returns why that is left.
func (c *serversLoginCmd) signIn(u *ui, manager *upstream.Manager, name string) (status oauth.Status, left string, err error) {
	login, _ := manager.Login(name)
	before, found, err := login.Status()
	switch good := found && before.Ended == ""; {
	case err != nil:
		return before, "", fmt.Errorf("%s: %w", printable(name), err)
	case good && c.All:
		return before, describeLogin(before) + " already", nil
	case good:
		u.say("%s: %s already; signing in again.\n", printable(name), describeLogin(before))
	}
	ctx, cancel := context.WithTimeout(u.ctx, c.Timeout)
	defer cancel()
	to := visitor{u, name}
	status, err = manager.SignIn(ctx, name, func(want string) (oauth.Redirect, error) {
		if c.NoBrowser {
			return oauth.Pasted(want, to.paste)
		}
		return oauth.Loopback(want, to.browse)
	})
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		why := errors.New("no one signed in")
		if c.NoBrowser {
			why = errNothingPasted
		}
		err = fmt.Errorf("%s: %w within %s; --timeout allows more", printable(name), why, c.Timeout)
	case errors.Is(err, upstream.ErrNoLogin) && c.All:
		return status, upstream.ErrNoLogin.Error(), nil
	case err != nil:
		err = fmt.Errorf("%s: %w", printable(name), err)
	}
	return status, "", err
}

type serversLogoutCmd struct {
	serversFlags
	Names []string `arg:"" optional:"" help:"The servers' names." complete:"url-servers"`
	All   bool     `help:"Sign out at all servers."`
	JSON  bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversLogoutCmd) Help() string {
	return `Revokes the tokens at the authorization server, if that can be done, and forgets them in any case.

Examples:
  sallyport servers logout docs
  sallyport servers logout --all`
}

// logoutResult is what became of one login.
type logoutResult struct {
	Name    string `json:"name"`
	Found   bool   `json:"found"` // there was a login
	Revoked bool   `json:"revoked"`
	// Problem says why the tokens could not be revoked.
	Problem string `json:"problem,omitempty"`
}

// Run implements the command.
func (c *serversLogoutCmd) Run(u *ui) error {
	lib, manager, done, err := u.openLogins(&c.serversFlags, c.Names, c.All)
	if err != nil {
		return err
	}
	defer done()
	var names []string
	for _, text := range c.Names {
		d, err := find(lib, text)
		if err != nil {
			return err
		}
		if _, ok := manager.Login(d.Name); !ok {
			return withoutLogin(d)
		}
		names = append(names, d.Name)
	}
	if c.All {
		for _, d := range lib.Snapshot().Definitions {
			names = append(names, d.Name)
		}
	}
	results := []logoutResult{}
	for _, name := range names {
		login, ok := manager.Login(name)
		if !ok {
			continue
		}
		before, r, err := signOut(u.ctx, login, name)
		if err != nil {
			return fmt.Errorf("%s: %w", printable(name), err)
		}
		if r.Found || !c.All {
			results = append(results, r)
			u.say("%s: %s.\n", printable(name), r.text(before))
		}
	}
	if c.JSON {
		return u.printJSON(struct {
			Servers []logoutResult `json:"servers"`
		}{results})
	}
	if len(results) == 0 {
		u.say("You are signed in nowhere.\n")
	}
	return nil
}

// signOut ends a login, if there is one. An error means that it is still there.
func signOut(ctx context.Context, login *oauth.Login, name string) (before oauth.Status, r logoutResult, err error) {
	before, found, unread := login.Status()
	r = logoutResult{Name: name, Found: found || unread != nil}
	if !r.Found {
		return before, r, nil
	}
	revoked, err := login.SignOut(ctx)
	if _, still, unread := login.Status(); still || unread != nil {
		return before, r, cmp.Or(err, unread, errors.New("the login could not be removed"))
	}
	if r.Revoked = revoked; err != nil {
		r.Problem = err.Error()
	}
	return before, r, nil
}

// text says what became of a login, which was as in before.
func (r *logoutResult) text(before oauth.Status) string {
	at := cmp.Or(invisible.Line(before.Issuer), "the authorization server")
	switch {
	case !r.Found:
		return "you are not signed in"
	case r.Problem != "":
		return fmt.Sprintf("signed out here, but the tokens could not be revoked (%s): they may be valid until they expire; you can end the access at %s", invisible.Line(r.Problem), at)
	case !r.Revoked:
		return fmt.Sprintf("signed out here; %s has no way to revoke tokens, which are valid until they expire", at)
	}
	return "signed out; the tokens are revoked"
}
