// Command configuration writes docs/CONFIGURATION.md from the declarations in
// internal/settings. A test of that package fails when the file is stale.
//
//	go run ./scripts/configuration
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/sallyport/sallyport/internal/settings"
)

func main() {
	out := flag.String("o", "docs/CONFIGURATION.md", "the file")
	flag.Parse()
	if err := os.WriteFile(*out, []byte(settings.Document()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "configuration:", err)
		os.Exit(1)
	}
}
