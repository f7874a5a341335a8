package bridge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Nearest returns at most n of the names, most similar first.
func Nearest(wanted string, names []string, n int) []string {
	type ranked struct {
		name     string
		distance int
	}
	wanted = strings.ToLower(clip(wanted, 64))
	all := make([]ranked, len(names))
	for i, name := range names {
		lower := strings.ToLower(clip(name, 64))
		d := distance(wanted, lower)
		if wanted != "" && (strings.Contains(lower, wanted) || strings.Contains(wanted, lower)) {
			d = min(d, 1)
		}
		all[i] = ranked{name, d}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.distance, b.distance) })
	out := make([]string, 0, n)
	for _, r := range all[:min(n, len(all))] {
		out = append(out, r.name)
	}
	return out
}

// nearestTool returns what a message adds about a tool that a server does not
// have.
func nearestTool(tools []tool.Tool, wanted string) string {
	if len(tools) == 0 {
		return " (it has no tools)"
	}
	names := make([]string, len(tools))
	for i := range tools {
		names[i] = tools[i].Name
	}
	return " (nearest: " + strings.Join(Nearest(wanted, names, 3), ", ") + ")"
}

// distance returns the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			substitution := diagonal
			if a[i] != b[j] {
				substitution++
			}
			row[j+1] = min(substitution, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
