package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"sallyport/internal/accounting"
	"sallyport/internal/carbon"
	"sallyport/internal/carbon/codecarbon"
	"sallyport/internal/carbon/hardware"
	"sallyport/internal/carbon/intensity"
	"sallyport/internal/ledger"
	"sallyport/internal/settings"
	"sallyport/internal/state"
)

// ledgerOf is the ledger of the settings in force; nil where there is no place
// for one.
func (a *app) ledgerOf() *ledger.Ledger {
	if a.settings.StateDir == "" {
		return nil
	}
	return ledger.At(state.At(a.settings.StateDir).Sub("ledger"))
}

// emissions is what the settings say of energy and emissions.
type emissions struct {
	tables    *carbon.Tables
	model     *carbon.Model
	places    *accounting.Places
	pue       carbon.PUE
	config    codecarbon.Config // of CodeCarbon
	dashboard *codecarbon.Outbox
	lacking   error // why there is no dashboard
}

// emissions reads what the settings, and CodeCarbon's configuration, say. It
// asks nobody.
func (a *app) emissions() (*emissions, error) {
	set := a.settings.Carbon
	tables, err := carbon.Load()
	if err != nil {
		return nil, err
	}
	e := &emissions{tables: tables, model: carbon.New(tables, set.Method)}
	e.places = &accounting.Places{Tables: tables, Method: set.Method, Intensity: set.Intensity, Log: a.log}
	for _, p := range []struct {
		key, text string
		to        **carbon.Location
	}{
		{"carbon.location", set.Location, &e.places.Declared},
		{"carbon.kaggle.location", set.Kaggle, &e.places.Kaggle},
		{"carbon.runpod.location", set.RunPod, &e.places.RunPod},
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
		e.pue = carbon.PUE{Factor: set.PUE, Source: "declared (carbon.pue)"}
	}
	if err := a.codecarbon(e); err != nil {
		return nil, err
	}
	if !e.config.ElectricityMaps.IsZero() {
		token := e.config.ElectricityMaps
		e.places.Service = intensity.New(intensity.Options{Base: set.MapsURL, Token: token.Reveal, Zone: set.Zone})
	}
	if set.DetectLocation {
		e.places.Locator = &intensity.Locator{Dir: state.At(a.settings.StateDir).Sub("carbon")}
	}
	return e, nil
}

// codecarbon reads the user's own configuration of CodeCarbon.
func (a *app) codecarbon(e *emissions) error {
	mode := a.settings.Carbon.Dashboard
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
	if home := a.env.home(); filepath.IsAbs(home) {
		errs = append(errs, read(filepath.Join(home, codecarbon.FileName), false))
	}
	// Whoever wrote the working directory's file does not turn this on.
	if mode == settings.DashboardOn {
		if dir, err := os.Getwd(); err == nil && dir != a.env.home() {
			errs = append(errs, read(filepath.Join(dir, codecarbon.FileName), true))
		}
	}
	if err := errors.Join(errs...); err != nil {
		if mode == settings.DashboardOn {
			return err
		}
		a.log.Warn("energy and emissions", "error", err)
	}
	e.config = codecarbon.Merge(append(layers, codecarbon.FromEnviron(a.env.list()))...)
	e.lacking = e.config.Ready()
	switch {
	case mode == settings.DashboardOff:
		e.lacking = errors.New("the setting carbon.dashboard is off")
	case a.settings.StateDir == "":
		e.lacking = state.ErrNoPlace
	}
	if e.lacking != nil {
		if mode == settings.DashboardOn {
			a.log.Warn("nothing is reported to the dashboard of CodeCarbon (carbon.dashboard is on)", "error", e.lacking)
		}
		return nil
	}
	var err error
	e.dashboard, err = codecarbon.NewOutbox(codecarbon.Options{
		Dir: state.At(a.settings.StateDir).Sub("outbox"), Config: e.config, Log: a.log,
	})
	return err
}

// books begins to keep account, where the settings ask for it; nil: they do
// not. The caller closes them.
func (a *app) books(backend string) (*accounting.Books, error) {
	set := a.settings.Carbon
	if !set.Enabled {
		return nil, nil
	}
	e, err := a.emissions()
	if err != nil {
		return nil, err
	}
	config := accounting.Config{
		Ledger: a.ledgerOf(), Model: e.model, Tables: e.tables, PUE: e.pue, Places: e.places, Backend: backend,
		Profile:   func() carbon.Profile { return hardware.Profile("/") },
		Dashboard: e.dashboard, Claims: state.At(a.settings.StateDir).Sub("accounted"),
		Project: e.config.Project, Experiment: e.config.ExperimentID,
		System: runtime.GOOS + "-" + runtime.GOARCH, Version: "sallyport " + readVersion().Version,
		Keep: set.Keep, Log: a.log,
	}
	if config.Project == "" {
		config.Project = "sallyport"
	}
	if set.CSV != "" {
		config.CSV = codecarbon.OpenFile(set.CSV)
	}
	if config.Meter, err = hardware.NewMeter("/"); err != nil {
		a.log.Debug("energy counters", "error", err)
		config.Meter = nil
	}
	return accounting.Open(config), nil
}
