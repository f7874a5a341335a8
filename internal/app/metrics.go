package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/metrics"
)

// Metrics returns what was counted until now.
func (c *Core) Metrics(ctx context.Context) metrics.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = c.counting.Flush(ctx) // what is not counted in time is counted next time
	running, waiting := c.Executions()
	return c.counts.Snapshot(metrics.Now{Running: running, Waiting: waiting, Lost: c.Journal.Lost()})
}

// Stats returns what the running Sallyports with this state directory have counted, and why some
// of it may be missing.
func (a *App) Stats(ctx context.Context) (all []control.Stats, problems []string) {
	s := a.running(ctx)
	for _, p := range s.processes {
		if p.StateDir != s.stateDir {
			continue // of another home
		}
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		one, err := s.clients[p].Stats(ctx)
		cancel()
		switch {
		case err == nil:
			all = append(all, one)
		case !errors.Is(err, control.ErrGone):
			s.Problems = append(s.Problems, err.Error())
		}
	}
	return all, s.Problems
}

// portRetry is how often a port that another Sallyport has is tried again.
const portRetry = 15 * time.Second

// publishMetrics serves the metrics at metrics.listen, until end is called. Where
// another Sallyport of the user does, this one waits for its end.
func (c *Core) publishMetrics() (end func()) {
	address := c.app.Settings.Metrics.Listen
	if address == "" {
		return func() {}
	}
	log := c.app.Log
	server := &http.Server{
		Handler: c.metricsHandler(address), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for told := false; ctx.Err() == nil; told = true {
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err == nil {
				log.Info("metrics are published", "address", listener.Addr().String())
				if err = server.Serve(listener); errors.Is(err, http.ErrServerClosed) {
					return
				}
			}
			if !told && ctx.Err() == nil {
				log.Warn("metrics are not published here: another Sallyport may do so already", "setting", "metrics.listen", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(portRetry):
			}
		}
	}()
	return func() {
		cancel()
		_ = server.Close()
		<-done
	}
}

// metricsHandler answers at /metrics. A page in a browser that has a name of its own
// point to this machine is refused.
func (c *Core) metricsHandler(address string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !reachedAs(r.Host, address) {
			http.Error(w, "metrics are not published under this name", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_ = c.Metrics(r.Context()).Write(w) // who asked may have gone
	})
	return mux
}

// reachedAs reports whether a request's host is an address, localhost, or the name
// under which we listen.
func reachedAs(host, address string) bool {
	name := func(s string) string {
		if n, _, err := net.SplitHostPort(s); err == nil {
			s = n
		}
		return strings.Trim(s, "[]")
	}
	own, listens := name(host), name(address)
	if ip := net.ParseIP(listens); ip != nil && !ip.IsLoopback() {
		return true // open to others, who have names for this machine
	}
	return own == "localhost" || own == listens || net.ParseIP(own) != nil
}
