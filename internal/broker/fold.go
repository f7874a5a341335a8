package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/fold"
)

// Folded returns the result with its output as a model reads it, and what that
// leaves out, in words; empty if nothing is lost. The raw output is the caller's:
// r stays as it is.
func (r *Result) Folded() (*Result, string) {
	c := *r
	var left, l fold.Left
	c.Stdout, left = foldParts(r.Stdout, fold.Stdout)
	c.Stderr, l = foldParts(r.Stderr, fold.Stderr)
	left.States, left.Lines = left.States+l.States, left.Lines+l.Lines
	c.Notes = slices.Clone(r.Notes)
	for i, n := range r.Notes { // one has what code wrote between two calls
		lines, l := fold.Lines(strings.Split(n, "\n"), fold.Stdout)
		c.Notes[i] = strings.Join(lines, "\n")
		left.States += l.States
	}
	var what []string
	switch left.States {
	case 0:
	case 1:
		what = append(what, "1 earlier state of a line that was written over")
	default:
		what = append(what, fmt.Sprintf("%d earlier states of lines that were written over", left.States))
	}
	if left.Lines > 0 {
		what = append(what, fmt.Sprintf("%d lines of repeated warnings", left.Lines))
	}
	return &c, strings.Join(what, " and ")
}

// foldParts folds what stands before and after marks of bytes that were left out,
// which nothing may write over.
func foldParts(lines []string, stream fold.Stream) (folded []string, left fold.Left) {
	for from := 0; ; {
		i := from
		for i < len(lines) && !IsMarker(lines[i]) {
			i++
		}
		part, l := fold.Lines(lines[from:i], stream)
		left.States, left.Lines = left.States+l.States, left.Lines+l.Lines
		if i == len(lines) {
			if from == 0 {
				return part, left
			}
			return append(folded, part...), left
		}
		folded = append(append(folded, part...), lines[i])
		from = i + 1
	}
}
