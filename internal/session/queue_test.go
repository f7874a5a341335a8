package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueueKeepsTheOrderOfTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		const n = 20
		tickets := make([]*Ticket, n)
		for i := range tickets {
			tickets[i] = q.enter()
		}
		order := make(chan int, n)
		for i := n - 1; i >= 0; i-- { // waiting begins in the other order
			go func() {
				if err := q.wait(t.Context(), tickets[i]); err != nil {
					t.Error(err)
				}
				order <- i
				q.leave(tickets[i])
			}()
			synctest.Wait()
		}
		for want := range n {
			if got := <-order; got != want {
				t.Fatalf("ticket %d had its turn, want %d", got, want)
			}
		}
		synctest.Wait()
		if q.length() != 0 {
			t.Errorf("%d left in the queue", q.length())
		}
	})
}

func TestQueueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		first, second, third := q.enter(), q.enter(), q.enter()
		cause := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := q.wait(ctx, first); err != nil {
			t.Errorf("a ticket whose turn it is: %v", err)
		}
		if err := q.wait(ctx, second); !errors.Is(err, cause) {
			t.Errorf("a cancelled wait: %v", err)
		}
		q.leave(second)
		q.leave(second) // once more does nothing
		q.leave(first)
		deadline, cancelDeadline := context.WithTimeout(t.Context(), time.Second)
		defer cancelDeadline()
		if err := q.wait(deadline, third); err != nil {
			t.Errorf("the next one: %v", err)
		}
		q.leave(third)
	})
}
