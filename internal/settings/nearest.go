package settings

import (
	"strings"
)

// A rival is a candidate with its distance from the wanted name.
type rival struct {
	name  string
	score float64
}

// Nearest returns the candidate nearest to a wanted name, and reports whether
// it is near enough to be what was meant. Names may have parts between
// separators.
func Nearest(wanted string, candidates []string, separator string) (string, bool) {
	return nearest(wanted, candidates, separator)
}

// nearest returns the nearest candidate, and reports whether it is near enough
// to be what was meant. Names have parts between separators. A wanted name that
// is the last part of another ("memory", "limits.memory") is near it.
func nearest(wanted string, candidates []string, separator string) (string, bool) {
	best := rival{score: 1e9}
	w := strings.ToLower(cut(wanted, 64))
	for _, name := range candidates {
		n := strings.ToLower(name)
		score := float64(distance(w, n))
		// Compare the last parts alone, in case the first ones are missing or differ.
		wLast, nLast := lastPart(w, separator), lastPart(n, separator)
		if len(wLast) > 2 {
			s := 0.3 + float64(distance(wLast, nLast)) + float64(len(n)-len(nLast))/100
			if firstPart(w, separator) != firstPart(n, separator) {
				s += 0.3 // a different section
			}
			score = min(score, s)
		}
		if strings.HasSuffix(n, separator+w) {
			score = min(score, 0.1+float64(len(n)-len(w))/100)
		}
		if score < best.score {
			best = rival{name, score}
		}
	}
	near := best.score <= max(2, float64(len(lastPart(w, separator)))/3)
	return best.name, near && best.score < float64(len(best.name))*2/3 // or little of the name is left
}

func lastPart(name, separator string) string {
	return name[strings.LastIndex(name, separator)+1:]
}

func firstPart(name, separator string) string {
	first, _, _ := strings.Cut(name, separator)
	return first
}

func cut(s string, n int) string { return s[:min(n, len(s))] }

// distance returns the Levenshtein distance in bytes. Swapping two neighbours
// counts as one step.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			substitution := row[j]
			if a[i] != b[j] {
				substitution++
			}
			next[j+1] = min(substitution, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
