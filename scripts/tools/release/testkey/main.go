// Command testkey makes a pair of minisign's keys for tests, without a password.
//
//	go -C scripts/tools run ./release/testkey FILE    writes FILE and FILE.pub
package main

import (
	"fmt"
	"os"

	"aead.dev/minisign"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testkey FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "testkey:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return err
	}
	text, err := private.MarshalText()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	text, err = public.MarshalText()
	if err != nil {
		return err
	}
	return os.WriteFile(path+".pub", append(text, '\n'), 0o644)
}
