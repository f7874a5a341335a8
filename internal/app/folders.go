package app

import (
	"errors"
	"fmt"
	"os/user"
	"path/filepath"
	"slices"

	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/folder"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
)

// secretDirs are variables that say where programs keep secrets that are usually in
// hidden folders of the home directory.
var secretDirs = []string{
	"AZURE_CONFIG_DIR", "CLAUDE_CONFIG_DIR", "CLOUDSDK_CONFIG", "CODEX_HOME", "DOCKER_CONFIG", "GNUPGHOME", "KUBECONFIG", "PASSWORD_STORE_DIR",
	"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
}

// FolderRules say which folders of this computer no sandbox may see.
func (a *App) FolderRules() folder.Rules {
	home := a.Env.Home()
	own := append(a.Env.runtimeDirs(), a.Settings.StateDir)
	if file := a.Settings.File().Path; file != "" {
		own = append(own, file, filepath.Join(filepath.Dir(file), toolpolicy.Directory))
	}
	if dir := a.Env.absolute("XDG_CACHE_HOME"); dir != "" {
		own = append(own, filepath.Join(dir, "sallyport"))
	}
	if filepath.IsAbs(home) {
		own = append(own, filepath.Join(home, "MCPs")) // definitions of servers, with their keys
	}
	for _, name := range secretDirs {
		own = append(own, a.Env.absolute(name))
	}
	rules := folder.Rules{Home: home, Own: own}
	if !filepath.IsAbs(home) {
		if account, err := user.Current(); err == nil {
			rules.Account = account.HomeDir
		}
	}
	for _, text := range a.Settings.Files.Mounts {
		if m, err := folder.Parse(text); err == nil && m.Mode == sandbox.ReadWrite {
			rules.Open = append(rules.Open, m.Source)
		}
	}
	if path, err := Executable(); err == nil {
		rules.Fixed = []string{path}
	}
	return rules
}

// RootRule completes and checks a folder that a client names as a root. Nil: the
// setting does not allow such folders.
func (a *App) RootRule() func(sandbox.Mount) (sandbox.Mount, error) {
	if !a.Settings.Files.Roots {
		return nil
	}
	return a.FolderRules().Resolve
}

// A Folder is one of the setting files.mounts.
type Folder struct {
	Mount sandbox.Mount
	Err   error // why it is not visible; folder.ErrGone: it is not there now
}

// Folders returns the folders of the settings as they are now.
func (a *App) Folders() []Folder {
	rules := a.FolderRules()
	var out []Folder
	for _, text := range a.Settings.Files.Mounts {
		m, err := rules.Read(text)
		out = append(out, Folder{m, err})
	}
	return out
}

// names reports whether the settings have a folder, which has been resolved by the
// rules.
func (a *App) names(rules folder.Rules, m sandbox.Mount) bool {
	return slices.ContainsFunc(a.Settings.Files.Mounts, func(text string) bool {
		one, err := folder.Parse(text)
		if err != nil || folder.WithDefaults(one).Target != m.Target {
			return false
		}
		one, err = rules.Resolve(one)
		return err == nil && one.Shows(m)
	})
}

// folders implements broker.Folders.
type folders struct{ app *App }

// Now implements broker.Folders.
func (f folders) Now() (mounts []sandbox.Mount, notes []string, err error) {
	for _, one := range f.app.Folders() {
		switch {
		case errors.Is(one.Err, folder.ErrGone):
			notes = append(notes, settings.MountsKey+": "+one.Err.Error()+". The session began without it")
		case one.Err != nil:
			return nil, nil, fmt.Errorf("%s: %w", settings.MountsKey, one.Err)
		default:
			mounts = append(mounts, one.Mount)
		}
	}
	return mounts, notes, nil
}

// Again implements broker.Folders.
func (f folders) Again(m sandbox.Mount) error {
	rules := f.app.FolderRules()
	now, err := rules.Resolve(m)
	switch {
	case err != nil:
		return err
	case now != m:
		return fmt.Errorf("%s is a link now. Put the folder back", m.Source)
	case m.By == sandbox.ByClient && !f.app.Settings.Files.Roots:
		return errors.New("files.roots is off now. Turn it on")
	case m.By == "" && !f.app.names(rules, m):
		return fmt.Errorf("%s does not have %s any more. Put that back", settings.MountsKey, folder.Format(m))
	}
	return nil
}

// folders looks at the folders of the settings.
func (c *selfCheck) folders() {
	for _, f := range c.app.Folders() {
		if f.Err != nil {
			c.add(FindingWarn, "%s: %v", settings.MountsKey, f.Err)
			continue
		}
		c.add(FindingOK, "code sees %s at %s (%s)", f.Mount.Source, f.Mount.Target, f.Mount.Mode)
	}
}
