package app

import (
	"github.com/sallyport/sallyport/internal/batch/kaggle"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/hardware"
)

// Estimate is the footprint of a program at one place where it could run.
type Estimate struct {
	Engine    string            `json:"engine"`
	Place     string            `json:"place,omitempty"`
	Footprint *carbon.Footprint `json:"footprint"`
}

// Estimates returns the footprint of the same usage at every place: on this
// machine, and with the accelerator, if one is named, on batch services.
func (e *Emissions) Estimates(used carbon.Usage, gpu string, gpus int) []Estimate {
	here := hardware.Profile("/")
	here.PUE = e.PUE
	f := e.Model.Footprint(used, here, e.Places.Here())
	list := []Estimate{{"this machine", placeOf(f), &f}}
	there := used
	if gpu != "" {
		used.GPUs = []carbon.GPU{{Model: gpu, Count: gpus}}
		there.GPUs = []carbon.GPU{{Model: gpu, Count: max(gpus, kaggle.LeastGPUs(gpu))}}
	}
	far := e.Model.Footprint(there, carbon.Profile{PUE: e.Tables.PUE("kaggle")}, e.Places.Elsewhere("kaggle", ""))
	list = append(list, Estimate{"kaggle", placeOf(far), &far})
	for _, center := range e.Tables.RunPodCenters() {
		f := e.Model.Footprint(used, carbon.Profile{PUE: e.Tables.PUE("runpod")}, e.Places.Elsewhere("runpod", center.ID))
		list = append(list, Estimate{"runpod", center.ID + ", " + center.Place, &f})
	}
	return list
}

func placeOf(f carbon.Footprint) string {
	if f.Emissions == nil {
		return "not known"
	}
	g := f.Emissions.Grid
	l := carbon.Location{Country: g.Country, Region: g.Region, Cloud: g.Cloud}
	return l.String()
}
