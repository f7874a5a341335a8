package upstream

import (
	"sallyport/internal/upstream/child"
	"sallyport/internal/upstream/remote"
)

// Check says, without starting anything, why a server can never be started with
// these options: its address is one that may not be used.
func Check(def Definition, opts Options) error {
	if r := def.Remote(); r != nil {
		return remote.CheckURL(r.URL, opts.PlainHTTP)
	}
	return nil
}

// Missing says what a start would not find now: the program.
func Missing(def Definition, opts Options) error {
	if def.Remote() != nil {
		return nil
	}
	spec := def.Launch()
	_, err := child.Find(spec.Command, spec.Dir, childEnvironment(opts.Environ, opts.Inherit, spec.Env))
	if err != nil {
		return redactError(def, err)
	}
	return nil
}
