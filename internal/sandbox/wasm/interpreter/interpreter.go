// Package interpreter carries CPython compiled to WebAssembly and its standard
// library. scripts/wasmpython builds both files; PROVENANCE.md says from what.
package interpreter

import (
	_ "embed"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Version is the interpreter's.
const Version = "3.13.5"

//go:embed python.wasm.zst
var compressed string

//go:embed python313.zip
var library string

// Module returns the interpreter as a WebAssembly module. Each call decompresses
// it anew.
func Module() ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	module, err := r.DecodeAll([]byte(compressed), nil)
	if err != nil {
		return nil, fmt.Errorf("decompress the interpreter: %w", err)
	}
	return module, nil
}

// Library returns the standard library: compiled modules in a zip file.
func Library() string { return library }

// Digest returns the SHA-256 of the module followed by the library, in
// hexadecimal digits.
func Digest() string { return digest }
