package sandbox

import (
	"context"
	"errors"
)

// Unusable is an engine that cannot run here: it reports why, and runs nothing.
type Unusable struct {
	Backend string
	Why     Finding // fatal
}

var _ Engine = (*Unusable)(nil)

// Name implements Engine.
func (e *Unusable) Name() string { return e.Backend }

// Probe implements Engine.
func (e *Unusable) Probe(context.Context) (*Report, error) {
	return &Report{Backend: e.Backend, Limits: map[Resource]LimitReport{}, Findings: []Finding{e.Why}}, nil
}

// Start implements Engine.
func (e *Unusable) Start(context.Context, *Spec) (Run, error) {
	return nil, &Error{Op: "start", Backend: e.Backend, Kind: ErrUnavailable, Err: errors.New(e.Why.Title)}
}

// Attach implements Engine.
func (e *Unusable) Attach(context.Context, Handle) (Run, error) {
	return nil, &Error{Op: "attach", Backend: e.Backend, Kind: ErrGone}
}

// Close implements Engine.
func (e *Unusable) Close() error { return nil }
