// Command sallyport gives an AI agent one MCP tool, run_python. Under other
// names the same executable is parts of its engines.
package main

import (
	"context"
	"os"

	"sallyport/internal/cli"
	_ "sallyport/internal/procfs" // ends the program where /proc is missing
	"sallyport/internal/sandbox/gvisor/cell"
	"sallyport/internal/sandbox/process"
)

func main() {
	if code, ok := cell.Main(os.Args); ok {
		os.Exit(code)
	}
	if code, ok := process.Main(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Environ(), cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
