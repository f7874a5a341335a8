//go:build linux && (amd64 || arm64)

package wasm

import (
	"github.com/sallyport/sallyport/internal/sandbox/wasm/interpreter"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/machine"
)

// binding lists what compiled code and images depend on besides the executable.
func binding() string { return "interpreter: " + interpreter.Digest() + "\n" + machine.Binding() }

// runtimeName names the interpreter, for people.
func runtimeName() string { return "CPython " + interpreter.Version + ", embedded" }
