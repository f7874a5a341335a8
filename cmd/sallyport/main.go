// Command sallyport gives an AI agent one MCP tool, run_python.
package main

import (
	"gvisor.dev/gvisor/runsc/cli/maincli"
)

func main() { maincli.Main() }
