// Command wasmpython prepares a WebAssembly module for the engine wasm: it lets
// loops call the host, so that the host can interrupt them. scripts/wasmpython/build
// calls it for the interpreter that it builds.
//
//	go run ./scripts/wasmpython instrument IN OUT
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wasmpython:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(args []string) error {
	if len(args) != 3 || args[0] != "instrument" {
		return errors.New("usage: wasmpython instrument IN OUT")
	}
	raw, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	out, err := instrument(raw)
	if err != nil {
		return err
	}
	return os.WriteFile(args[2], out, 0o644)
}
