package app

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/sallyport/sallyport/internal/upgrade"
	"github.com/sallyport/sallyport/internal/upgrade/owner"
)

// Executable returns the file that runs, without symbolic links.
func Executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// InstalledBy returns what installed the executable at path. released reports
// whether it was built as a release.
func (a *App) InstalledBy(path string, info *debug.BuildInfo, released bool) owner.Owner {
	return owner.Here(a.Env.Home()).Of(a.Life, path, info, released)
}

// Upgrader returns what replaces the executable at path. from is where releases
// are: a URL, a directory, or "" for the project's own.
func (a *App) Upgrader(path, from string, progress func(stage string, done, total int64)) *upgrade.Upgrader {
	return &upgrade.Upgrader{
		Path:     path,
		Platform: upgrade.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH},
		From:     from,
		Agent:    "sallyport/" + a.Version,
		Proxy:    a.Env.proxy(),
		Environ:  []string{"PATH=" + a.Env["PATH"], "SYSTEMROOT=" + a.Env["SYSTEMROOT"]},
		Progress: progress,
	}
}
