// Command install writes the guest, as it lies in this tree, into a directory:
// install DIR PYTHON. For testdata/in-gvisor.
package main

import (
	"context"
	"fmt"
	"os"

	"sallyport/internal/guest"
)

func main() {
	dir, python := os.Args[1], os.Args[2]
	err := guest.Write(dir)
	if err == nil {
		err = guest.Compile(context.Background(), python, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
