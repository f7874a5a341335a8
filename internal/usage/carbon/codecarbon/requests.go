package codecarbon

import (
	"context"
	"errors"
	"time"
)

// step does one request, and returns what is to be written down of it.
type step func(context.Context) (func(*record), error)

// create makes the run.
func (o *Outbox) create(run RunCreate) step {
	return func(ctx context.Context) (func(*record), error) {
		id, err := o.api.createRun(ctx, run)
		return func(r *record) {
			r.Trouble = trouble(err)
			if err == nil {
				r.RunID, r.Creating = id, false
			} else if !errors.Is(err, errUncertain) {
				r.Creating = false
			}
		}, err
	}
}

// lookForRun finds out whether the run was made.
func (o *Outbox) lookForRun(was record) step {
	return func(ctx context.Context) (func(*record), error) {
		id, found, err := o.api.findRun(ctx, was.Run)
		return func(r *record) {
			r.Trouble = trouble(err)
			switch {
			case err == nil && found:
				r.RunID, r.Creating = id, false
			case err == nil, errors.Is(err, errRefused):
				// An empty run too many is better than none.
				r.Creating, r.Trouble = false, ""
			}
		}, unlessRefused(err)
	}
}

// post sends an emission.
func (o *Outbox) post(e Emission) step {
	return func(ctx context.Context) (func(*record), error) {
		err := o.api.addEmission(ctx, e)
		return func(r *record) {
			r.Trouble = trouble(err)
			if err == nil {
				r.taken(o.opts.Now())
			} else if !errors.Is(err, errUncertain) {
				r.Tried = false // it is sent again as it is
			}
		}, err
	}
}

// lookForEmission finds out whether an emission was taken. Where the dashboard
// does not say, it is not sent again: it might be counted twice.
func (o *Outbox) lookForEmission(was record) step {
	return func(ctx context.Context) (func(*record), error) {
		has, err := o.api.hasEmission(ctx, *was.InFlight)
		return func(r *record) {
			r.Trouble = trouble(err)
			switch {
			case err == nil && has:
				r.taken(o.opts.Now())
			case err == nil:
				r.Tried = false
			case errors.Is(err, errRefused):
				r.doubt(*r.InFlight)
				r.InFlight, r.Tried = nil, false
				r.Trouble = "the dashboard does not say whether it took an emission: `sallyport carbon sync --resend` or `--drop` decides"
			}
		}, unlessRefused(err)
	}
}

func unlessRefused(err error) error {
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}

func (r *record) taken(now time.Time) {
	r.InFlight, r.Tried = nil, false
	r.Last = now
	r.Sent++
}

func trouble(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
