package accounting

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/intensity"
)

// Places knows where code runs, as far as that is declared or reported, and the
// electricity there. What is not known is nil. It is safe for concurrent use.
type Places struct {
	Tables *carbon.Tables
	Method string // of the model: its own numbers of the table
	// Declared, Kaggle and RunPod are what the user declared; nil: nothing.
	Declared, Kaggle, RunPod *carbon.Location
	Intensity                float64            // declared of this machine; negative: not
	Service                  *intensity.Service // nil: no token
	Locator                  *intensity.Locator // nil: no consent
	Log                      *slog.Logger

	mu      sync.Mutex
	failing string
}

// Here is the electricity of this machine, as far as it is known without
// waiting.
func (p *Places) Here() *carbon.Grid {
	l := p.here()
	if p.Intensity >= 0 {
		declared := carbon.Location{}
		if l != nil {
			declared = *l
		}
		g := carbon.Declared(p.Intensity, declared)
		return &g
	}
	if l == nil {
		return nil
	}
	return p.grid(*l, true)
}

func (p *Places) here() *carbon.Location {
	if p.Declared != nil {
		return p.Declared
	}
	if p.Locator != nil {
		if l, ok := p.Locator.Known(); ok {
			return &l
		}
	}
	return nil
}

// Elsewhere is the electricity of a run on another engine. Region is the
// service's own word for the place.
func (p *Places) Elsewhere(backend, region string) *carbon.Grid {
	var l *carbon.Location
	switch backend {
	case "kaggle":
		l = p.Kaggle
	case "runpod":
		if c, ok := p.Tables.RunPod(region); ok {
			l = &c.Location
		} else {
			l = p.RunPod
		}
	}
	if l == nil {
		return nil
	}
	return p.grid(*l, false)
}

func (p *Places) grid(l carbon.Location, here bool) *carbon.Grid {
	lookup := p.Tables.Grid
	if p.Method == carbon.MethodCodeCarbon {
		lookup = p.Tables.GridAsCodeCarbon
	}
	table, err := lookup(l)
	if p.Service != nil {
		if g, ok := p.Service.Now(l, here); ok {
			g.CountryName = table.CountryName
			return &g
		}
	}
	if err != nil {
		return nil
	}
	return &table
}

// Refresh asks what may be asked: where this machine is, and the live
// intensity of where things run.
func (p *Places) Refresh(ctx context.Context) {
	var errs []string
	if p.Declared == nil && p.Locator != nil {
		if _, err := p.Locator.Locate(ctx, func(l carbon.Location) bool { _, err := p.Tables.Grid(l); return err == nil }); err != nil {
			errs = append(errs, err.Error())
		}
	}
	if p.Service != nil {
		if l := p.here(); l != nil && p.Intensity < 0 {
			if err := p.Service.Refresh(ctx, *l, true); err != nil {
				errs = append(errs, err.Error())
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	// The same complaint once.
	text := strings.Join(errs, "; ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if text != "" && text != p.failing {
		p.Log.Warn("the electricity here", "error", text)
	}
	p.failing = text
}
