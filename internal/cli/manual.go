package cli

import (
	"io"
	"time"

	"github.com/sallyport/sallyport/internal/manpage"
)

// ManPages returns the manual pages of all commands, by the names of their files.
func ManPages(version string, date time.Time) (map[string]string, error) {
	parser, err := newParser(&grammar{}, Stdio{Out: io.Discard, Err: io.Discard}, func(int) {})
	if err != nil {
		return nil, err
	}
	m := manpage.Manual{
		Name: "Sallyport", Version: version, Date: date,
		Files: []manpage.Entry{
			{Term: "~/.config/sallyport/config.yaml", Meaning: "The settings; 'sallyport config' prints those in force. $XDG_CONFIG_HOME takes the place of ~/.config."},
			{Term: "~/MCPs/*.json", Meaning: "The definitions of MCP servers."},
			{Term: "~/.local/state/sallyport", Meaning: "What is kept after the program exits; 'sallyport state' shows it. $XDG_STATE_HOME takes the place of ~/.local/state."},
		},
		Environ: []manpage.Entry{
			{Term: "SALLYPORT_…, MCP_BRIDGE_…", Meaning: "Settings; 'sallyport config --json' names the variables of each."},
			{Term: "SALLYPORT_CONFIG", Meaning: "Configuration file to read instead of the default one, as with --config."},
		},
	}
	for _, e := range exits {
		m.Exits = append(m.Exits, manpage.Entry{Term: exitName(e.status), Meaning: e.meaning})
	}
	return m.Pages(parser.Model), nil
}
