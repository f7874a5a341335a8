package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/completion"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// toolNames returns what names a tool, as far as the tools of servers are stored:
// for kind "tools" a server, or a server with its tool; for "tools-of" a tool of the
// server before it; for "call" also the arguments of the tool.
func (u *ui) toolNames(kind string, line *completion.Line) []completion.Candidate {
	lib, _, err := u.openLibrary(&serversFlags{ServersConfig: line.Flags["servers-config"]})
	if err != nil {
		return nil
	}
	defer lib.Close()
	known := u.KnownTools(lib)
	if kind == "tools" {
		return append(u.serverNames("servers", line), dotted(known, line.Word)...)
	}
	if len(line.Args) == 0 {
		return nil
	}
	now := lib.Snapshot()
	entry := func(name string) *catalog.Entry {
		i := slices.IndexFunc(known, func(e catalog.Entry) bool { return e.Name == name && e.Listing != nil })
		if i < 0 {
			return &catalog.Entry{Listing: &catalog.Listing{}}
		}
		return &known[i]
	}
	if name, err := readServer(now, line.Args[0]); err == nil && name != "" && len(line.Args) == 1 {
		return toolsIn(entry(name), "")
	}
	server, name, rest, err := toolNamed(now, line.Args...)
	if err != nil || kind != "call" {
		return nil
	}
	t, err := findTool(entry(server), name)
	if err != nil {
		return nil
	}
	return arguments(t, line.Word, rest)
}

// dotted returns the tools of the server that a word begins with.
func dotted(known []catalog.Entry, word string) []completion.Candidate {
	var out []completion.Candidate
	names := make([]string, len(known))
	for i := range known {
		names[i] = known[i].Name
	}
	calls := tool.ServerCalls(names)
	for i := range known {
		for _, form := range []string{known[i].Name, calls[known[i].Name]} {
			if known[i].Listing != nil && strings.HasPrefix(word, form+".") {
				out = append(out, toolsIn(&known[i], form+".")...)
			}
		}
	}
	return out
}

// toolsIn returns the tools of a server. One whose name a shell would read gets that
// of its function.
func toolsIn(e *catalog.Entry, before string) []completion.Candidate {
	var out []completion.Candidate
	calls := tool.Calls(e.Listing.Tools, e.Denied)
	for i := range e.Listing.Tools {
		t := &e.Listing.Tools[i]
		name := t.Name
		if alias, ok := strings.CutPrefix(calls[t.Name], "."); ok && (strings.HasPrefix(before, "mcp_") || !completion.Safe(name)) {
			name = alias
		}
		out = append(out, completion.Candidate{Value: before + name, Help: t.Description})
	}
	return out
}

// arguments returns the keys that are not given yet, or the values of the one that
// the word has.
func arguments(t *tool.Tool, word string, given []string) []completion.Candidate {
	var out []completion.Candidate
	for _, k := range signature.Keys(t.InputSchema) {
		before := k.Key + "="
		if strings.HasPrefix(word, before) {
			for _, v := range k.Values {
				out = append(out, completion.Candidate{Value: before + v})
			}
			return out
		}
		if !slices.ContainsFunc(given, func(word string) bool { return strings.HasPrefix(word, before) || strings.HasPrefix(word, k.Key+":=") }) {
			out = append(out, completion.Candidate{Value: before, Help: k.Description})
		}
	}
	return out
}

// questionNames returns the questions that wait for an answer.
func (u *ui) questionNames() []completion.Candidate {
	ctx, cancel := context.WithTimeout(u.ctx, sessionsTime)
	defer cancel()
	var out []completion.Candidate
	for _, q := range u.FindApprovals(ctx).Open {
		out = append(out, completion.Candidate{Value: q.Address(), Help: q.Name()})
	}
	return out
}
