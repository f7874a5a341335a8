//go:build !unix

package library

import "testing"

func mkfifo(t *testing.T, path string) { t.Skip("no named pipes for " + path) }
