//go:build linux

package machine

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

//go:embed *.py
var scriptFiles embed.FS

// scripts returns the files that the embedded interpreter starts with.
func scripts() (map[string]string, error) {
	entries, err := scriptFiles.ReadDir(".")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, e := range entries {
		data, err := scriptFiles.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		all[e.Name()] = string(data)
	}
	return all, nil
}

// identity tells interpreters apart whose images differ.
func (i Interpreter) identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", i.Digest)
	for _, name := range slices.Sorted(maps.Keys(i.Scripts)) {
		fmt.Fprintf(h, "%q %q\n", name, i.Scripts[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}
