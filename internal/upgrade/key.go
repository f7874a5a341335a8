package upgrade

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"aead.dev/minisign"
)

//go:embed sallyport.pub
var released string

// linked replaces the release keys in a build for tests:
//
//	go build -ldflags '-X github.com/sallyport/sallyport/internal/upgrade.linked=RW…'
//
// Nothing at run time can.
var linked string

// ErrNoKey reports a build that cannot verify releases.
var ErrNoKey = errors.New("this build has no release key, so it cannot verify a release: download one from " + Releases + " and verify it as https://github.com/sallyport/sallyport/blob/main/docs/INSTALL.md says, or build from source")

// Keys returns the public keys that releases are signed with, and whether they
// are those of a test build.
func Keys() (keys []minisign.PublicKey, test bool, err error) {
	text := released
	if linked != "" {
		text, test = linked, true
	}
	keys, err = parseKeys(text)
	if err == nil && len(keys) == 0 {
		err = ErrNoKey
	}
	return keys, test, err
}

// parseKeys reads public keys, one a line. There are two while an old key is
// replaced: releases are signed with either.
func parseKeys(text string) ([]minisign.PublicKey, error) {
	var keys []minisign.PublicKey
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "untrusted comment:") {
			continue
		}
		var key minisign.PublicKey
		if err := key.UnmarshalText([]byte(line)); err != nil {
			return nil, fmt.Errorf("the release key in this executable is damaged: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
