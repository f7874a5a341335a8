// Command install writes the guest, as it lies in this tree, below a directory
// and prints where: install DIR PYTHON. For testdata/in-gvisor.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox/programdir"
)

func main() {
	dir, err := programdir.Install(context.Background(), os.Args[1], python.Program(), os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
