package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
)

// findBrowser returns the program that opens an address: the one that the variable
// BROWSER names, as editors set it in containers, or the opener of this desktop. The
// error says why there is none.
func (u *ui) findBrowser() ([]string, error) {
	first, _, _ := strings.Cut(u.variable("BROWSER"), string(filepath.ListSeparator))
	if command := strings.Fields(first); len(command) > 0 {
		return command, nil
	}
	switch {
	case u.variable("SSH_CONNECTION") != "":
		return nil, errors.New("this is a session of SSH")
	case runtime.GOOS != "darwin" && runtime.GOOS != "windows" && u.variable("DISPLAY") == "" && u.variable("WAYLAND_DISPLAY") == "":
		return nil, errors.New("there is no desktop")
	}
	return findOpener()
}

// openBrowser opens an address, and calls failed if that fails later. It does not
// wait for a browser, which may outlive the command and its Ctrl-C.
func (u *ui) openBrowser(address string, failed func(error)) error {
	opener, err := u.findBrowser()
	if err != nil {
		return err
	}
	// Openers start programs for addresses of other schemes.
	if to, err := url.Parse(address); err != nil || to.Scheme != "https" && to.Scheme != "http" {
		return errors.New("the address does not begin with https:// or http://")
	}
	command := exec.CommandContext(context.WithoutCancel(u.ctx), opener[0], append(opener[1:], address)...)
	command.SysProcAttr = detached()
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		if err := command.Wait(); err != nil {
			failed(fmt.Errorf("%s: %w", filepath.Base(opener[0]), err))
		}
	}()
	return nil
}

// errNothingPasted: standard input has ended, or the time to paste is over.
var errNothingPasted = errors.New("no address was pasted")

// A visitor sends the user to the addresses where one signs in at a server.
type visitor struct {
	*ui
	server string
}

// browse opens the browser. The address is printed in any case: it may open where
// the user does not see it.
func (v visitor) browse(_ context.Context, address string) error {
	err := v.openBrowser(address, func(err error) {
		v.tell("The browser could not be opened (%s): visit the address yourself.\n", err)
	})
	if err == nil {
		v.tell("Sign in to %s at %s in your browser. If it does not open, visit:\n\n  %s\n\n", printable(v.server), host(address), address)
		return nil
	}
	v.tell("No browser is opened, because %s. To sign in to %s at %s, visit with a browser on this computer:\n\n  %s\n\n"+
		"With a browser on another computer: sallyport servers login --no-browser %s\n",
		err, printable(v.server), host(address), address, terminal.ShellWord(invisible.Line(v.server)))
	return nil
}

// paste asks for the address that the browser returned to.
func (v visitor) paste(ctx context.Context, address string) (string, error) {
	v.tell("To sign in to %s at %s, visit:\n\n  %s\n\n"+
		"At the end, the browser shows that it cannot reach a page. Paste the address of that page here:\n", printable(v.server), host(address), address)
	text, err := until(ctx, func() (string, error) {
		for {
			line, err := v.line()
			if line = strings.TrimSpace(line); line != "" || err != nil {
				return line, err
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNothingPasted, err)
	}
	return text, nil
}

// tell prints what the user has to do: on standard error, where it does not mix
// with what the command prints.
func (v visitor) tell(format string, args ...any) { fmt.Fprintf(v.stdio.Err, format, args...) }

// host returns the host of an address.
func host(address string) string {
	to, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	return invisible.Line(to.Host)
}
