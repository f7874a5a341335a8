package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/library"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// OpenLibrary reads which servers the user has, for commands that need no
// System and print all problems themselves.
func (a *App) OpenLibrary(serversConfig []string) (*library.Library, []string, error) {
	return a.library(serversConfig, slog.New(slog.DiscardHandler))
}

// library reads which servers the user has, and returns the problems of the
// definitions for people. It fails where one of serversConfig, which the user
// named, cannot be read.
func (a *App) library(serversConfig []string, log *slog.Logger) (*library.Library, []string, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	set := a.Settings
	lib := library.New(library.Config{
		Places:    definitions.Places{OS: runtime.GOOS, Home: a.Env.Home(), Dir: a.Dir, Env: a.Env.Lookup},
		Names:     set.Servers.Sources,
		Files:     set.Servers.Config,
		Fallback:  set.Servers.FallbackConfig,
		Self:      definitions.Self{Executable: executable},
		AllowSelf: set.Servers.AllowSelf,
		State:     store.At(set.StateDir),
		Check: func(d library.Definition) error {
			return upstream.Check(d, upstream.Options{PlainHTTP: set.Servers.PlainHTTP})
		},
		Log: log,
	})
	var problems []string
	for _, p := range lib.Snapshot().Problems {
		if !p.Warning && p.Server == "" && slices.ContainsFunc(serversConfig, func(name string) bool { return a.sameFile(name, p.File) }) {
			// The user named this file: going on without it is no answer.
			return nil, nil, errors.New(p.String())
		}
		problems = append(problems, p.String())
	}
	return lib, problems, nil
}

// sameFile reports whether two paths, relative ones from the working directory,
// name the same file.
func (a *App) sameFile(one, other string) bool {
	return a.absolute(one) == a.absolute(other)
}

func (a *App) absolute(path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.Dir, path)
	}
	return filepath.Clean(path)
}

// Sharing returns for whom a server of a definition runs, and why, if it is not for
// all clients.
func (a *App) Sharing(d upstream.Definition) (how definitions.Sharing, why string) {
	named, rest := a.Settings.Servers.SharingOf(d.Name)
	if named != "" {
		return definitions.Sharing(named), "the setting servers.sharing says so"
	}
	if how, why = d.Shares(); how != definitions.ShareAll || why != "" || rest == settings.ShareAll {
		return how, why
	}
	return definitions.Sharing(rest), "the setting servers.sharing says so"
}

func (a *App) sharing(d upstream.Definition) definitions.Sharing {
	how, _ := a.Sharing(d)
	return how
}

// MayAsk returns what a server may ask while it works on a call, in the words of the
// setting servers.may, and why it may ask nothing.
func (a *App) MayAsk(name string) (words []string, why string) {
	switch words = a.Settings.Servers.MayOf(name); {
	case len(words) == 0:
		return nil, "the setting servers.may says so"
	case a.Settings.Approvals.Timeout == 0:
		return nil, "no one is asked, says the setting approvals.timeout"
	}
	return words, ""
}

// userServers is the bridge.Source of the servers that the user has.
type userServers struct {
	bridge.Source
	*library.Library
}

// Version implements bridge.Live.
func (u userServers) Version(again bool) uint64 { return u.Current(again).Version }

// Identity implements bridge.Identified.
func (u userServers) Identity(ctx context.Context, name string) (id string, lasting bool, err error) {
	return u.Source.(bridge.Identified).Identity(ctx, name)
}

// SignIn implements bridge.SignsIn.
func (u userServers) SignIn(ctx context.Context, name string, open func(want string) (oauth.Redirect, error)) (oauth.Status, error) {
	return u.Source.(bridge.SignsIn).SignIn(ctx, name, open)
}

// Borrow implements bridge.Lender.
func (u userServers) Borrow(ctx context.Context, name string, use func(bridge.Server) error) error {
	return u.Source.(bridge.Lender).Borrow(ctx, name, use)
}
