//go:build !linux

package main

import (
	"fmt"
	"io"
)

// timeline says that there is none.
func (b *bench) timeline(_ *client, w io.Writer) error {
	_, err := fmt.Fprintln(w, "No timeline: only Linux can be traced.")
	return err
}
