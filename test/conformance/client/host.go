package main

import (
	"context"
	"encoding/json"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/upstream"
)

// agreeing is a person who accepts each form as it is filled in.
type agreeing struct{}

func (agreeing) Origin() string       { return "suite" }
func (agreeing) Takes() inquiry.Takes { return inquiry.Takes{Forms: true} }

func (agreeing) Ask(_ context.Context, r *inquiry.Request) (json.RawMessage, error) {
	return r.Check(json.RawMessage(`{"action":"accept","content":{}}`))
}

func (agreeing) Progress(upstream.Progress) {}
func (agreeing) Log(upstream.Message)       {}
