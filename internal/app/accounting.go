package app

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"github.com/sallyport/sallyport/internal/accounting"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/hardware"
	"github.com/sallyport/sallyport/internal/usage/carbon/intensity"
)

// Emissions is what the settings determine about energy and emissions.
type Emissions struct {
	Tables     *carbon.Tables
	Model      *carbon.Model
	Places     *accounting.Places
	PUE        carbon.PUE
	CodeCarbon codecarbon.Config
	Dashboard  *codecarbon.Outbox
	Lacking    error // why there is no dashboard
}

// Emissions reads the settings and CodeCarbon's configuration. It makes no
// request.
func (a *App) Emissions() (*Emissions, error) {
	set := a.Settings.Carbon
	tables, err := carbon.Load()
	if err != nil {
		return nil, err
	}
	e := &Emissions{Tables: tables, Model: carbon.New(tables, set.Method)}
	e.Places = &accounting.Places{Tables: tables, Method: set.Method, Intensity: set.Intensity, Log: a.Log}
	for _, p := range []struct {
		key, text string
		to        **carbon.Location
	}{
		{"carbon.location", set.Location, &e.Places.Declared},
		{"carbon.kaggle.location", set.Kaggle, &e.Places.Kaggle},
		{"carbon.runpod.location", set.RunPod, &e.Places.RunPod},
	} {
		if p.text == "" {
			continue
		}
		l, err := carbon.ParseLocation(p.text)
		if err == nil {
			_, err = tables.Grid(l)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.key, err)
		}
		*p.to = &l
	}
	if set.PUE > 1 {
		e.PUE = carbon.PUE{Factor: set.PUE, Source: "declared (carbon.pue)"}
	}
	if err := a.codecarbon(e); err != nil {
		return nil, err
	}
	if !e.CodeCarbon.ElectricityMaps.IsZero() {
		token := e.CodeCarbon.ElectricityMaps
		e.Places.Service = intensity.New(intensity.Options{Base: set.MapsURL, Token: token.Reveal, Zone: set.Zone})
	}
	if set.DetectLocation {
		e.Places.Locator = &intensity.Locator{Dir: a.state(store.Carbon)}
	}
	return e, nil
}

// codecarbon reads the user's own configuration of CodeCarbon.
func (a *App) codecarbon(e *Emissions) error {
	mode := a.Settings.Carbon.Dashboard
	var layers []codecarbon.Layer
	read := func(path string, local bool) error {
		raw, err := codecarbon.ReadConfig(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var keys map[string]string
		if err == nil {
			keys, err = codecarbon.ParseFile(raw)
		}
		if err != nil {
			return fmt.Errorf("the configuration of CodeCarbon, %s: %w", path, err)
		}
		layers = append(layers, codecarbon.Layer{Name: path, Keys: keys, Local: local})
		return nil
	}
	var errs []error
	if home := a.Env.Home(); filepath.IsAbs(home) {
		errs = append(errs, read(filepath.Join(home, codecarbon.FileName), false))
	}
	// Whoever wrote the working directory's file does not turn this on.
	if mode == settings.DashboardOn {
		if a.Dir != "" && a.Dir != a.Env.Home() {
			errs = append(errs, read(filepath.Join(a.Dir, codecarbon.FileName), true))
		}
	}
	if err := errors.Join(errs...); err != nil {
		if mode == settings.DashboardOn {
			return err
		}
		a.Log.Warn("energy and emissions", "error", err)
	}
	e.CodeCarbon = codecarbon.Merge(append(layers, codecarbon.FromEnviron(a.Env.List()))...)
	e.Lacking = e.CodeCarbon.Ready()
	switch {
	case mode == settings.DashboardOff:
		e.Lacking = errors.New("the setting carbon.dashboard is off")
	case a.Settings.StateDir == "":
		e.Lacking = store.ErrNoPlace
	}
	if e.Lacking != nil {
		if mode == settings.DashboardOn {
			a.Log.Warn("nothing is sent to the CodeCarbon dashboard, although carbon.dashboard is on", "error", e.Lacking)
		}
		return nil
	}
	var err error
	e.Dashboard, err = codecarbon.NewOutbox(codecarbon.Options{
		Dir: a.state(store.Outbox), Config: e.CodeCarbon, Log: a.Log,
	})
	return err
}

// books opens the accounts, which the caller closes. It returns nil where the
// settings turn them off.
func (a *App) books(backend func() string) (*accounting.Books, error) {
	set := a.Settings.Carbon
	if !set.Enabled {
		return nil, nil
	}
	e, err := a.Emissions()
	if err != nil {
		return nil, err
	}
	config := accounting.Config{
		Ledger: a.Ledger(), Model: e.Model, Tables: e.Tables, PUE: e.PUE, Places: e.Places, Backend: backend,
		Profile:   func() carbon.Profile { return hardware.Profile("/") },
		Dashboard: e.Dashboard, Claims: a.state(store.Accounted),
		Project: e.CodeCarbon.Project, Experiment: e.CodeCarbon.ExperimentID,
		System: runtime.GOOS + "-" + runtime.GOARCH, Version: "sallyport " + a.Version,
		Keep: set.Keep, Log: a.Log,
	}
	if config.Project == "" {
		config.Project = "sallyport"
	}
	if set.CSV != "" {
		config.CSV = codecarbon.OpenFile(set.CSV)
	}
	if config.Meter, err = hardware.NewMeter("/"); err != nil {
		a.Log.Debug("energy counters", "error", err)
		config.Meter = nil
	}
	return accounting.Open(config), nil
}
