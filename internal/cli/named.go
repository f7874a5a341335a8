package cli

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/library"
)

// names returns the names of the servers that code may use, which are those that
// identifiers mean, and of all.
func names(now *library.Snapshot) (usable, all []string) {
	for _, d := range now.Definitions {
		all = append(all, d.Name)
		if d.State() == "ready" {
			usable = append(usable, d.Name)
		}
	}
	return usable, all
}

// readServer returns the server that the user means, as tool.ReadServer does.
func readServer(now *library.Snapshot, text string) (string, error) {
	if _, ok := now.Get(text); ok {
		return text, nil
	}
	usable, all := names(now)
	name, err := tool.ReadServer(usable, text)
	if name == "" && err == nil {
		name, err = tool.ReadServer(all, text)
	}
	return name, err
}

// readTool is like readServer, as tool.ReadTool does.
func readTool(now *library.Snapshot, text string) (server, tl string, err error) {
	usable, all := names(now)
	server, tl, err = tool.ReadTool(usable, text)
	if server == "" && err == nil {
		server, tl, err = tool.ReadTool(all, text)
	}
	return server, tl, err
}

// serverNamed is readServer for a server that must be there.
func serverNamed(now *library.Snapshot, text string) (string, error) {
	name, err := readServer(now, text)
	if name == "" && err == nil {
		err = unknownServer(text, now)
	}
	return name, err
}

// serversNamed is serverNamed for several. Those of no server stay as they are.
func serversNamed(now *library.Snapshot, texts []string) ([]string, error) {
	out := make([]string, len(texts))
	for i, text := range texts {
		name, err := readServer(now, text)
		if err != nil {
			return nil, err
		}
		if out[i] = name; name == "" {
			out[i] = text
		}
	}
	return out, nil
}

// toolNamed returns the server and the tool that the first words mean: two of them,
// or one as it is printed, such as mcp_github.create_issue. The rest is what follows.
func toolNamed(now *library.Snapshot, words ...string) (server, tl string, rest []string, err error) {
	for len(words) > 0 && words[len(words)-1] == "" {
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		return "", "", nil, fmt.Errorf("name a tool: SERVER TOOL, or SERVER.TOOL")
	}
	name, err := readServer(now, words[0])
	if err != nil {
		return "", "", nil, err
	}
	if name != "" && len(words) > 1 {
		return name, words[1], words[2:], nil
	}
	if server, tl, err = readTool(now, words[0]); server != "" || err != nil {
		return server, tl, words[1:], err
	}
	if name != "" {
		return "", "", nil, fmt.Errorf("name a tool of %s, too; list them with: sallyport tools list %s", invisible.Line(name), terminal.ShellWord(invisible.Line(name)))
	}
	first, _, _ := strings.Cut(words[0], ".")
	if first == bridge.SavedServer {
		return "", "", nil, fmt.Errorf("%s is a saved tool: see 'sallyport saved-tools show'", invisible.Line(words[len(words)-1]))
	}
	return "", "", nil, unknownServer(first, now)
}

// findTool returns the tool of a listing that the user means.
func findTool(e *catalog.Entry, name string) (*tool.Tool, error) {
	if e.Listing == nil {
		return nil, fmt.Errorf("the tools of %s are unknown: %s", invisible.Line(e.Name), invisible.Escape(whyNot(e.Failure)))
	}
	t, err := tool.Find(e.Listing.Tools, name)
	if t == nil && err == nil {
		err = unknownTool(e.Name, name, e.Listing)
	}
	return t, err
}

// tool returns the server of a tool, whose tools it learns, and the tool's name;
// see toolNamed.
func (f *toolsFlags) tool(u *ui, sys *app.System, words ...string) (e catalog.Entry, name string, rest []string, err error) {
	server, name, rest, err := toolNamed(sys.Library.Snapshot(), words...)
	if err == nil {
		e, err = entryOf(sys, server)
	}
	if err != nil {
		return e, "", nil, err
	}
	f.learn(u, sys, server)
	e, _ = sys.Catalog.Entry(server)
	return e, name, rest, nil
}
