// Package lazyregexp has regular expressions that are compiled when they are first
// used: a frontend and a supervisor need hardly any of them, and start for
// each client and each sandbox.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns what compiles the expression once, at its first call. It panics then
// if the expression is not valid: internal/arch tests that all are.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
