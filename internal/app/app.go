// Package app is the composition root. It constructs from the settings and the
// environment everything that runs code, once for every frontend: a frontend
// parses its flags, prints and asks.
package app

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"github.com/sallyport/sallyport/internal/redact"
	"github.com/sallyport/sallyport/internal/settings"
)

// App is what everything is constructed from. A frontend sets all fields.
type App struct {
	Env      Environment
	Dir      string // the working directory; empty where it is gone
	Settings *settings.Settings
	Log      *slog.Logger
	Version  string          // the program's
	Life     context.Context // ends the program's work in the background

	images  *imageLibrary // nil until an engine needs it
	secrets redact.Set    // that are known, for the audit log

	naming   sync.Mutex
	named    string // the engine, once it was asked for, or the hub's
	followed bool   // it is the hub's
}

// LoadSettings loads the settings: from the configuration file of that name, or
// the user's where it is empty, the environment, and flags. Relative paths among
// them begin at dir.
func (e Environment) LoadSettings(dir, file string, flags []settings.Flag) (*settings.Settings, error) {
	src := e.Sources(dir, file)
	src.Flags = flags
	return settings.Load(src)
}

// Sources returns where settings come from, besides flags.
func (e Environment) Sources(dir, file string) settings.Sources {
	home := e.Home()
	if fi, err := os.Stat(home); err != nil || !fi.IsDir() {
		home = "" // nothing is read there, and nothing is kept
	}
	return settings.Sources{Environ: e, Home: home, Dir: dir, ConfigFile: file}
}
