package cli

import (
	"fmt"
	"strconv"
)

// An exitError makes a command exit with a status. A message, if any, has already
// been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Sallyport's own exit statuses; exits says what they mean. A command that runs a
// program otherwise exits with that program's status.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitTimeout     = 124 // like timeout(1)
	exitOurs        = 125 // like env(1) and docker run
	exitSignal      = 128 // and the signal's number, like shells
	exitInterrupted = exitSignal + 2
	exitKilled      = exitSignal + 9 // the program's own: the sandbox reports it
	exitClosed      = exitSignal + 13
)

// exits is the one table of exit statuses: the code uses no others, and help,
// the manual page and the guide print it.
var exits = []struct {
	status  int
	meaning string
}{
	{exitOK, "The command succeeded."},
	{exitFailed, "The command failed. 'run' and 'runs wait': the program ended with an uncaught exception, or chose 1 itself."},
	{exitUsage, "The command line or a setting is wrong; nothing was done. 'run' reports that as 125, since a program may choose 2."},
	{exitTimeout, "'run', 'runs wait': the program exceeded its time limit."},
	{exitOurs, "'run', 'runs wait': Sallyport itself failed, so the program did not run to its end, or files for --out are missing."},
	{exitInterrupted, "Ctrl-C ended the command."},
	{exitKilled, "'run', 'runs wait': the program exceeded its memory limit, or was killed."},
	{exitClosed, "The reader of standard output closed it."},
	{exitSignal, "128 plus a number: that signal ended the command, or the program."},
}

// exitTopic is what 'help' calls the table.
const exitTopic = "exit-codes"

// exitName returns how people write a status.
func exitName(status int) string {
	if status == exitSignal {
		return "128+n"
	}
	return strconv.Itoa(status)
}

// exitsText returns the table for people.
func exitsText() string {
	text := "Every command exits with one of these. 'run' and 'runs wait' otherwise exit with the program's own status: n for sys.exit(n).\n\n"
	for _, e := range exits {
		text += fmt.Sprintf("  %-5s  %s\n", exitName(e.status), e.meaning)
	}
	return text
}
