package cli

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// sharedBy is for whom one server of a definition runs, in the words of tables.
type sharedBy string

const (
	byAll       sharedBy = "all"
	byDirectory sharedBy = "directory"
	byClient    sharedBy = "client"
	bySession   sharedBy = "session"
)

// sharing returns for whom a server runs, and why not for all.
func sharing(a *app.App, d upstream.Definition) (by sharedBy, why string) {
	how, why := a.Sharing(d)
	switch {
	case how == definitions.ShareSession:
		return bySession, why
	case how == definitions.ShareClient:
		return byClient, why
	case d.Remote() == nil && d.Dir == "" && !d.Anywhere():
		return byDirectory, `it starts in the client's directory; "cwd" in its definition makes it one for all`
	}
	return byAll, ""
}

// explain says for whom a server runs, in a sentence.
func (by sharedBy) explain(why string) string {
	text := map[sharedBy]string{
		byAll:       "one for all clients",
		byDirectory: "one for all clients in a directory",
		byClient:    "one for each client",
		bySession:   "one for each session",
	}[by]
	if why != "" {
		text += ": " + why
	}
	return text
}

// countShared counts definitions by for whom their servers run.
func countShared(a *app.App, defs []upstream.Definition) map[sharedBy]int {
	out := map[sharedBy]int{}
	for _, d := range defs {
		by, _ := sharing(a, d)
		out[by]++
	}
	return out
}

// describeShared describes the counts of countShared.
func describeShared(counts map[sharedBy]int) string {
	var parts []string
	for _, by := range []sharedBy{byAll, byDirectory, byClient, bySession} {
		if n := counts[by]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, by.explain("")))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
