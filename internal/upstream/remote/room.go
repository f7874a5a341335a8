package remote

import (
	"context"
	"io"

	"github.com/sallyport/sallyport/internal/budget"
)

const (
	// uncharged is what every HTTP response may take while it is read.
	uncharged = 256 << 10
	// fine is the size from which memory is requested in steps of this size,
	// instead of doubling.
	fine = 16 << 20
)

// room charges a response to the lease of its call while it is read. It waits
// for memory if there is none: the response has a connection or a stream of its
// own.
type room struct {
	ctx     context.Context
	lease   *budget.Lease
	charged int64
	share   func()
}

// fits charges what n bytes need.
func (r *room) fits(n int) error {
	for r.lease != nil && n > uncharged && int64(n) > r.charged {
		if r.share == nil {
			share, err := r.lease.Exclusive(r.ctx)
			if err != nil {
				return err
			}
			r.share = share
		}
		more := min(max(r.charged, 2*uncharged), fine)
		if err := r.lease.Acquire(r.ctx, more); err != nil {
			return err
		}
		r.charged += more
	}
	return nil
}

// reset releases what was charged, for the rest of the same response.
func (r *room) reset() {
	r.lease.Reduce(r.lease.Held() - r.charged)
	r.charged = 0
}

// close lets other responses wait for memory. What is charged stays with the
// lease.
func (r *room) close() {
	if r.share != nil {
		r.share()
	}
}

// roomyReader requests memory for everything that it reads.
type roomyReader struct {
	r    io.Reader
	room *room
	n    int
}

func (r *roomyReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.n += n
	if failed := r.room.fits(r.n); failed != nil {
		return 0, failed
	}
	return n, err
}
