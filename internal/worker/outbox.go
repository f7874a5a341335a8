package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// outbox holds results that have not been accepted yet, on disk where possible.
type outbox struct {
	client *client
	dir    store.Dir
	keep   time.Duration // how long a result is offered
	log    *slog.Logger

	work sync.WaitGroup

	mu     sync.Mutex
	behind int64 // bytes of results that are offered in the background
}

// mostBehind bounds the results that are offered in the background, in memory
// and on disk. A result for which there is no room is offered by its job, which
// keeps counting towards the worker's number of jobs.
const mostBehind = 64 << 20

// letter is a result on disk.
type letter struct {
	Job  string          `json:"job"`
	Body json.RawMessage `json:"body"`
	Made time.Time       `json:"made"`
}

// patience is how long a worker waits for its result to be accepted before it
// takes another job and offers the result in the background.
const patience = 20 * time.Second

// deliver posts a result. It returns when the result has been accepted or given
// up, or is being offered in the background.
func (o *outbox) deliver(ctx context.Context, jobID string, body []byte) {
	l := letter{Job: jobID, Body: body, Made: time.Now()}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if o.offer(soon, l, nil) {
		return
	}
	key := name(jobID, "")
	saved := o.save(key, l)
	o.log.Error("a job's result is not taken; it is kept and offered again", "job", jobID, "onDisk", saved, "for", o.keep.String())
	size := int64(len(body))
	o.mu.Lock()
	room := o.behind == 0 || o.behind+size <= mostBehind
	if room {
		o.behind += size
	}
	o.mu.Unlock()
	if !room {
		o.goOn(ctx, key, l)
		return
	}
	o.work.Go(func() {
		defer func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.behind -= size
		}()
		o.goOn(ctx, key, l)
	})
}

func (o *outbox) save(key string, l letter) bool {
	b, err := json.Marshal(l)
	if err == nil {
		err = o.dir.Write(key, b)
	}
	if err != nil && !errors.Is(err, store.ErrNoPlace) {
		o.log.Warn("a result that was not accepted cannot be kept on disk", "job", l.Job, "error", err)
	}
	return err == nil
}

// goOn offers a result until its time is over, or the worker ends.
func (o *outbox) goOn(ctx context.Context, key string, l letter) {
	ctx, cancel := context.WithDeadline(ctx, l.Made.Add(o.keep))
	defer cancel()
	if o.offer(ctx, l, o.log) || !time.Now().Before(l.Made.Add(o.keep)) {
		if err := o.dir.Remove(key); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrNoPlace) {
			o.log.Warn("a result cannot be removed from disk", "job", l.Job, "error", err)
		}
	}
}

// offer posts until the result is accepted or refused for good, and then
// returns true, or until ctx is done. If log is not nil, it logs that the
// result is lost.
func (o *outbox) offer(ctx context.Context, l letter, log *slog.Logger) (settled bool) {
	var err error
	for wait := 500 * time.Millisecond; ; wait = min(wait*2, 30*time.Second) {
		err = o.client.post(ctx, o.client.place.PostOutput, l.Job, false, l.Body)
		if err == nil {
			if log != nil {
				log.Info("a result was taken after all", "job", l.Job, "after", time.Since(l.Made).Round(time.Second).String())
			}
			return true
		}
		if final(err) {
			o.log.Error("a job's result is LOST: the service does not want it", "job", l.Job, "bytes", len(l.Body), "error", err)
			return true
		}
		var s *errStatus
		if errors.As(err, &s) && s.after > wait {
			wait = s.after
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if log != nil {
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					log.Error("a job's result is LOST: the service did not accept it", "job", l.Job, "bytes", len(l.Body), "for", o.keep.String(), "error", err)
				} else {
					log.Error("a job's result is left on disk: the worker is shutting down", "job", l.Job, "error", err)
				}
			}
			return false
		}
	}
}

// recover offers the results that an earlier process left.
func (o *outbox) recover(ctx context.Context) error {
	names, err := o.dir.List()
	if err != nil {
		return fmt.Errorf("results that an earlier process left: %w", err)
	}
	for _, key := range names {
		b, err := o.dir.Read(key, 2*syncRoom)
		var l letter
		if err != nil || json.Unmarshal(b, &l) != nil || l.Job == "" {
			o.log.Error("a result that an earlier process left cannot be read", "file", key, "error", err)
			_ = o.dir.Remove(key)
			continue
		}
		o.work.Go(func() { o.goOn(ctx, key, l) })
	}
	return nil
}
