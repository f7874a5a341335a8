// Command man writes the manual pages: sallyport.1 and one for each command,
// such as sallyport-run.1.
//
//	go run ./scripts/man [-version V] DIR
//
// The pages carry the date in SOURCE_DATE_EPOCH, or today's.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/cli"
)

func main() {
	version := flag.String("version", "", "the version of Sallyport")
	flag.Parse()
	if err := write(flag.Args(), *version); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(args []string, version string) error {
	if len(args) != 1 {
		return errors.New("give one directory")
	}
	date := time.Now()
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", text)
		}
		date = time.Unix(seconds, 0)
	}
	pages, err := cli.ManPages(version, date)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for name, page := range pages {
		if err := os.WriteFile(filepath.Join(args[0], name), []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}
