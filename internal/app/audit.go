package app

import (
	"context"
	"fmt"

	"github.com/sallyport/sallyport/internal/authz/audit"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/redact"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// AuditDir is where the audit log is.
func (a *App) AuditDir() store.Dir { return a.state(store.Audit) }

// audit opens the audit log; nil if the settings ask for none, or if there is no
// place for it.
func (a *App) audit(events *journal.Journal) (*audit.Log, error) {
	set := a.Settings.Audit
	strict := set.Mode == settings.AuditStrict
	switch dir := a.AuditDir(); {
	case set.Mode == settings.AuditOff:
		return nil, nil
	case !dir.Placed() && strict:
		return nil, fmt.Errorf("audit.mode is strict: %w", store.ErrNoPlace)
	case !dir.Placed():
		a.Log.Warn("nothing is recorded in an audit log", "error", store.ErrNoPlace)
		return nil, nil
	default:
		return audit.Open(audit.Config{
			Dir: dir, Strict: strict, Code: set.Code, Arguments: set.Arguments,
			RotateSize: set.RotateSize, RotateAge: set.RotateAge, MaxDisk: set.MaxDisk, Keep: set.Keep,
			Secrets: &a.secrets, Log: a.Log,
		}, events), nil
	}
}

// learn has the audit log hide the secrets of definitions.
func learn(secrets *redact.Set, all []upstream.Definition) {
	var found []string
	for _, d := range all {
		found = append(found, d.Secrets()...)
	}
	secrets.Add(found...)
}

// learning returns read for a client of the Core, whose audit log hides what it
// reads.
func learning(secrets *redact.Set, read definitions.Secrets) definitions.Secrets {
	return func(ctx context.Context, kind, name string) (string, error) {
		value, err := read(ctx, kind, name)
		if err == nil {
			secrets.Add(value)
		}
		return value, err
	}
}
