package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/wire"
)

// Packages finds packages for sandboxes that run. An error is a [*wire.CallError]
// where code may know it.
type Packages interface {
	// Resolve chooses the packages that are needed and that the sandbox lacks. fetch
	// gets exactly these, and returns the name and the size of their archive. tell
	// receives progress until fetch has returned.
	Resolve(ctx context.Context, asked *wire.InstallPackages, tell func(stage string)) (found []wire.Package, fetch func(context.Context) (archive string, bytes int64, err error), err error)
	// Part returns a part of an archive, and the size of the archive.
	Part(archive string, offset int64) (data []byte, size int64, err error)
}

// Bounds of what code asks for.
const (
	maxInstall      = 1 << 20 // bytes in all
	maxRequirements = 200
	maxRequirement  = 500 // bytes
	maxInstalled    = 5000
	// maxUnasked bounds the packages of which an index may learn before a person has
	// agreed to any, in one execution.
	maxUnasked = 50
)

// additions are the packages that an execution has been offered.
type additions struct {
	turn    sync.Mutex // held while packages are found: one after the other
	mu      sync.Mutex
	offered []wire.Packages
	stage   string
	unasked int // packages asked for since a person has agreed
}

// PackageRule says whether code may install a package: "any", "listed", "ask" or
// "none"; and which are listed. An empty name stands for some package.
func (x *Execution) PackageRule(name string) (rule string, listed []string) {
	gate := x.bridge.config.Gate
	rule, listed = gate.Packages()
	if x.bridge.config.Packages == nil || rule == "" {
		return "none", nil
	}
	if name != "" {
		switch gate.Decide(x.principal, authz.InstallPackages{Requirements: []string{name}}).Effect {
		case authz.Deny:
			return "none", listed
		case authz.Ask:
			return authz.AskPackage, listed
		}
	}
	return rule, listed
}

func parseInstall(raw json.RawMessage) (*wire.InstallPackages, error) {
	var p wire.InstallPackages
	switch {
	case len(raw) > maxInstall:
		return nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("the request is larger than %d bytes", maxInstall)}
	case json.Unmarshal(raw, &p) != nil:
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'packages' must be a list of strings, 'installed' an object of strings"}
	case len(p.Installed) > maxInstalled:
		return nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("more than %d packages are there already", maxInstalled)}
	case len(p.Packages) > maxRequirements:
		return nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("at most %d packages may be asked for at once", maxRequirements)}
	}
	for _, r := range p.Packages {
		if len(r) > maxRequirement {
			return nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("a requirement is longer than %d bytes", maxRequirement)}
		}
	}
	if p.Installed == nil {
		p.Installed = map[string]string{}
	}
	return &p, nil
}

// installPackages finds the packages that code asks for. They are resolved before a
// person is asked, who sees exactly what would be added.
func (x *Execution) installPackages(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	source := x.bridge.config.Packages
	if source == nil {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "packages cannot be installed here"}
	}
	asked, err := parseInstall(raw)
	if err != nil {
		return nil, err
	}
	action := authz.InstallPackages{Requirements: asked.Packages}
	effect := x.bridge.config.Gate.Decide(x.principal, action).Effect
	switch effect {
	case authz.Deny:
		_, err := x.admit(ctx, action) // which records it
		return nil, err
	case authz.Ask:
		if !x.additions.mayAsk(len(asked.Packages)) {
			return nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("one execution may ask for at most %d packages to which the user has not agreed: ask for fewer", maxUnasked)}
		}
	}
	before := x.additions.count()
	x.additions.turn.Lock()
	defer x.additions.turn.Unlock()
	also := x.additions.since(before, asked.Installed) // while this one waited
	defer x.additions.tell("")
	offer, err := x.findPackages(ctx, source, asked, action)
	if err != nil {
		return nil, x.packageError(ctx, err)
	}
	if effect == authz.Ask && len(offer.Packages) > 0 {
		x.additions.agreed()
	}
	if offer.Archive != "" {
		x.additions.offer(offer)
	}
	offer.Also = also
	return json.Marshal(offer)
}

func (x *Execution) findPackages(ctx context.Context, source Packages, asked *wire.InstallPackages, action authz.InstallPackages) (wire.Packages, error) {
	what := invisible.Line(clip(asked.Packages[0], 60))
	if n := len(asked.Packages) - 1; n > 0 {
		what += fmt.Sprintf(" and %d more", n)
	}
	found, fetch, err := source.Resolve(ctx, asked, func(stage string) {
		x.additions.tell("installing " + what + ": " + invisible.Line(clip(stage, 100)))
	})
	if err != nil {
		return wire.Packages{}, err
	}
	if len(found) == 0 {
		return wire.Packages{Packages: []wire.Package{}}, nil
	}
	for _, p := range found {
		action.Adds = append(action.Adds, p.Name+" "+p.Version)
	}
	permit, err := x.admit(ctx, action)
	if err != nil {
		return wire.Packages{}, err
	}
	archive, bytes, err := fetch(ctx)
	finish(&permit, int(bytes), err)
	return wire.Packages{Archive: archive, Packages: found, Bytes: bytes}, err
}

// packageError returns the error for code, and logs what code may not know.
func (x *Execution) packageError(ctx context.Context, err error) error {
	var ready *wire.CallError
	var denied *authz.Denied
	if ctx.Err() != nil || errors.As(err, &denied) || errors.As(err, &ready) && ready == err {
		return err
	}
	x.bridge.log.Warn("packages for a session could not be prepared", "error", err)
	if ready != nil {
		return ready
	}
	return &wire.CallError{Kind: wire.KindInternal, Message: "the host could not prepare the packages; the user finds the reason in its log"}
}

// packagePart returns a part of an archive. The session has checked that it is one of
// its own.
func (x *Execution) packagePart(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	source := x.bridge.config.Packages
	var p wire.PackagePart
	switch {
	case source == nil:
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "packages cannot be installed here"}
	case json.Unmarshal(raw, &p) != nil:
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'archive' must be a string, 'offset' an integer"}
	}
	data, size, err := source.Part(p.Archive, p.Offset)
	if err != nil {
		return nil, x.packageError(ctx, err)
	}
	return json.Marshal(wire.PackageData{Data: data, Last: p.Offset+int64(len(data)) == size, Bytes: size})
}

func (a *additions) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.offered)
}

// since adds what was offered after the first n to what is installed, and returns the
// archives.
func (a *additions) since(n int, installed map[string]string) (archives []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.offered[n:] {
		archives = append(archives, o.Archive)
		for _, p := range o.Packages {
			if installed[p.Name] == "" {
				installed[p.Name] = p.Version
			}
		}
	}
	return archives
}

func (a *additions) offer(more wire.Packages) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offered = append(a.offered, more)
}

// mayAsk reports whether an index may learn of n more packages before a person has
// agreed, and counts them.
func (a *additions) mayAsk(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unasked+n > maxUnasked {
		return false
	}
	a.unasked += n
	return true
}

func (a *additions) agreed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unasked = 0
}

func (a *additions) tell(stage string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stage = stage
}

func (a *additions) activity() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage
}
