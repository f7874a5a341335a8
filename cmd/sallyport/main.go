// Command sallyport gives an AI agent one MCP tool, run_python. Under other
// names the same executable is parts of its engines.
package main

import (
	"context"
	"os"

	"github.com/sallyport/sallyport/internal/cli"
	"github.com/sallyport/sallyport/internal/executable"
	_ "github.com/sallyport/sallyport/internal/procfs" // ends the program where /proc is missing
	"github.com/sallyport/sallyport/internal/sandbox/gvisor/supervisor"
	"github.com/sallyport/sallyport/internal/sandbox/process"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/host"
)

func main() {
	if code, ok := supervisor.Main(os.Args); ok {
		os.Exit(code)
	}
	if code, ok := process.Main(os.Args); ok {
		os.Exit(code)
	}
	if code, ok := host.Main(os.Args); ok {
		os.Exit(code)
	}
	executable.Begin()
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Environ(), cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
