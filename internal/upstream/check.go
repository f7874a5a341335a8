package upstream

import (
	"errors"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Check returns an error if a server can never be started with these options,
// because its address may not be used. It starts nothing.
func Check(def Definition, opts Options) error {
	if r := def.Remote(); r != nil {
		if err := remote.CheckURL(r.URL, opts.PlainHTTP); err != nil {
			// The caller refuses it, and says so.
			return errors.New(strings.TrimPrefix(err.Error(), remote.ErrRefused.Error()+": "))
		}
	}
	return nil
}

// Missing returns an error if the server's program cannot be found now.
func Missing(def Definition, opts Options) error {
	if def.Remote() != nil {
		return nil
	}
	p := &Pool{opts: opts}
	plan := p.plan(def, p.surroundings(Surroundings{Environ: opts.Environ, Dir: opts.Dir}))
	_, err := child.Find(plan.command, plan.dir, plan.env)
	if err != nil {
		return redactError(def, err)
	}
	return nil
}
