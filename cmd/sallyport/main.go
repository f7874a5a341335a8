// Command sallyport gives an AI agent one MCP tool, run_python. Under other
// names the same executable is the parts of the embedded gVisor runtime.
package main

import (
	"os"

	"sallyport/internal/sandbox/gvisor/cell"
)

func main() {
	if code, ok := cell.Main(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(2)
}
