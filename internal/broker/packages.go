package broker

import (
	"encoding/json"
	"slices"

	"github.com/sallyport/sallyport/internal/wire"
)

// maxModule bounds the names that code may ask about.
const maxModule = 200

// packageFacts returns what a hint about a missing module depends on.
func (x *execution) packageFacts(params json.RawMessage) ([]byte, error) {
	var p struct {
		Module  string `json:"module"`
		Package string `json:"package"`
	}
	if err := json.Unmarshal(params, &p); err != nil || len(p.Module) > maxModule || len(p.Package) > maxModule {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'module' and 'package' must be short strings"}
	}
	var f wire.PackageFacts
	if ask := x.broker.config.PackageFacts; ask != nil {
		f = ask(p.Module, p.Package)
	}
	its, all := x.environments()
	f.Environments = slices.DeleteFunc(f.Environments, func(name string) bool { return name == its })
	if slices.Contains(all, its) { // not the environment of a script
		f.This = its
	}
	f.Command = x.req.Shown
	f.Install, f.Listed = x.servers.PackageRule(p.Package)
	return json.Marshal(f)
}

// scriptHeader returns what the header of the code asks for.
func (x *execution) scriptHeader(params json.RawMessage) ([]byte, error) {
	read := x.broker.config.ScriptHeader
	var p wire.ScriptHeader
	switch err := json.Unmarshal(params, &p); {
	case read == nil:
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "headers of scripts are not read here"}
	case err != nil:
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'version' must be two integers"}
	}
	packages, err := read(x.req.Code, p.Version[0], p.Version[1])
	if err != nil {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: err.Error()}
	}
	return json.Marshal(append([]string{}, packages...))
}
