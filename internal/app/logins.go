package app

import (
	"context"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/library"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// logins are the user's logins at servers. What they hold is hidden in the audit
// log.
func (a *App) logins() *oauth.Logins {
	return oauth.New(a.state(store.Logins), oauth.Options{
		Log: a.Log, Metadata: a.Settings.Servers.ClientMetadata, Secret: func(secrets ...string) { a.secrets.Add(secrets...) },
	})
}

// Logins returns a Manager of a library's servers, for commands that need no
// System. It starts no server. done closes it.
func (a *App) Logins(lib *library.Library) (m *upstream.Manager, done func()) {
	pool := a.servers(nil, nil, Options{})
	m = pool.NewManager(lib.Snapshot().Definitions, a.surroundings())
	return m, func() { _ = pool.Close(context.WithoutCancel(a.Life)) }
}
