package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit(t *testing.T) {
	const whole = time.Minute
	tests := []struct {
		name  string
		whole time.Duration
		do    func(*Limit)
		lasts time.Duration // after do; 0: for ever
	}{
		{"untouched", whole, func(*Limit) {}, whole},
		{"none", 0, func(l *Limit) { l.again() }, 0},
		{"partly over", whole, func(*Limit) { time.Sleep(40 * time.Second) }, 20 * time.Second},
		{"begun again", whole, func(l *Limit) { time.Sleep(40 * time.Second); l.again() }, whole},
		{"paused", whole, func(l *Limit) { l.Pause() }, 0},
		{"paused and resumed", whole, func(l *Limit) {
			resume := l.Pause()
			time.Sleep(time.Hour)
			resume()
		}, whole},
		{"paused when it was partly over", whole, func(l *Limit) {
			time.Sleep(40 * time.Second)
			resume := l.Pause()
			time.Sleep(time.Hour)
			resume()
		}, 20 * time.Second},
		{"paused twice", whole, func(l *Limit) {
			first, second := l.Pause(), l.Pause()
			time.Sleep(time.Hour)
			first()
			time.Sleep(time.Hour)
			second()
		}, whole},
		{"paused twice, resumed once", whole, func(l *Limit) { l.Pause(); l.Pause()() }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, l, end := WithLimit(t.Context(), tt.whole)
				defer end()
				tt.do(l)
				began := time.Now()
				select {
				case <-ctx.Done():
				case <-time.After(24 * time.Hour):
					began = time.Now()
				}
				if got := time.Since(began); got != tt.lasts {
					t.Errorf("got %v, want %v", got, tt.lasts)
				}
				want := error(timeoutError{whole})
				if tt.lasts == 0 {
					want = nil
				}
				if got := context.Cause(ctx); got != want { //nolint:errorlint // the very error
					t.Errorf("got %v, want %v", got, want)
				}
			})
		})
	}
}

// TestLimitOfAnEndedCall: who resumes it later does not let it run.
func TestLimitOfAnEndedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, l, end := WithLimit(t.Context(), time.Second)
		resume := l.Pause()
		end()
		resume()
		time.Sleep(time.Minute)
		if got := context.Cause(ctx); !errors.Is(got, context.Canceled) || l.timer != nil {
			t.Errorf("got %v and a timer: %t, want %v and none", got, l.timer != nil, context.Canceled)
		}
	})
}
