package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"sallyport/internal/accounting"
	"sallyport/internal/carbon"
	"sallyport/internal/carbon/codecarbon"
	"sallyport/internal/carbon/hardware"
	"sallyport/internal/ledger"
	"sallyport/internal/sandbox/kaggle"
)

// outboxStatus is what an outbox holds.
type outboxStatus = codecarbon.Status

type carbonEstimateCmd struct {
	Duration time.Duration `help:"How long it takes (a number is seconds)." type:"seconds" placeholder:"DURATION"`
	CPUs     float64       `help:"Processors that are busy all that time." name:"cpus" default:"1" placeholder:"N"`
	Memory   float64       `help:"Memory that it holds, in GB." default:"1" placeholder:"GB"`
	GPU      string        `help:"Accelerator that it uses on engines elsewhere, such as 'RTX 4090'." name:"gpu" placeholder:"MODEL"`
	GPUs     int           `help:"How many of them. A machine of Kaggle's with T4s has two, which are both counted." name:"gpus" default:"1" placeholder:"N"`
	File     string        `help:"Take time, processors and memory from the last runs of this program." placeholder:"FILE"`
	JSON     bool          `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*carbonEstimateCmd) Help() string {
	return `Engines with an accelerator take --gpu; this machine's sandboxes have none. The same time is taken everywhere: where you know that an engine is faster, ask once more with its --duration. What is not known is not made up: emissions on Kaggle need carbon.kaggle.location.

Example:
  sallyport carbon estimate --duration 10m --gpu T4
  sallyport carbon estimate --file train.py --gpu 'RTX 4090'`
}

// choice is a place where something could run.
type estimate struct {
	Engine    string            `json:"engine"`
	Place     string            `json:"place,omitempty"`
	Footprint *carbon.Footprint `json:"footprint"`
}

// Run implements the command.
func (c *carbonEstimateCmd) Run(a *app) error {
	if err := a.configure(); err != nil {
		return err
	}
	e, err := a.emissions()
	if err != nil {
		return err
	}
	u, from, err := c.usage(a)
	if err != nil {
		return err
	}
	if c.GPU != "" {
		if _, ok := e.tables.GPU(c.GPU); !ok {
			return fmt.Errorf("the power of %q is not known; name it as its maker does, such as 'Tesla T4', 'A100 SXM4' or 'RTX 4090'", c.GPU)
		}
		if c.GPUs < 1 {
			return fmt.Errorf("--gpus %d: at least 1", c.GPUs)
		}
	}
	e.places.Refresh(a.ctx)
	list := c.compare(e, u)
	memory, known := "unknown", (*float64)(nil)
	if u.MemoryBytes >= 0 {
		memory, known = withUnit(u.MemoryBytes, "B"), &u.MemoryBytes
	}
	if c.JSON {
		return a.printJSON(struct {
			From  string     `json:"from"`
			Usage estimateOf `json:"usage"`
			List  []estimate `json:"engines"`
		}{from, estimateOf{u.Wall.Seconds(), u.CPU.Seconds(), known, c.GPU}, list})
	}
	fmt.Fprintf(a.stdio.Out, "For %s, %s of processor time, %s of memory (%s):\n\n", u.Wall.Round(time.Millisecond), u.CPU.Round(time.Millisecond), memory, from)
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tPLACE\tENERGY\t(RANGE)\tCO2E\t(RANGE)")
	for _, one := range list {
		energy, grams, span := one.Footprint.Energy, "unknown", ""
		if m := one.Footprint.Emissions; m != nil {
			grams, span = sumOf(&m.Grams, m.High != nil, "g"), between(&m.Low, m.High, "g")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", one.Engine, one.Place, sumOf(energy.Joules, len(energy.Missing) == 0, "J"), between(energy.Low, energy.High, "J"), grams, span)
	}
	return w.Flush()
}

// estimateOf is what an estimate is for.
type estimateOf struct {
	WallSeconds float64  `json:"wallSeconds"`
	CPUSeconds  float64  `json:"cpuSeconds"`
	MemoryBytes *float64 `json:"memoryBytes"` // nil: not known
	GPU         string   `json:"gpu,omitempty"`
}

// usage is what is to be estimated, and where that comes from.
func (c *carbonEstimateCmd) usage(a *app) (u carbon.Usage, from string, err error) {
	if c.File == "" {
		if c.Duration <= 0 {
			return u, "", fmt.Errorf("say how long it takes (--duration 10m), or of which program the last runs tell it (--file x.py)")
		}
		if c.CPUs < 0 || c.Memory < 0 {
			return u, "", fmt.Errorf("--cpus and --memory are not negative")
		}
		return carbon.Usage{Wall: c.Duration, CPU: time.Duration(c.CPUs * float64(c.Duration)), MemoryBytes: c.Memory * 1e9}, "as given", nil
	}
	raw, err := os.ReadFile(filepath.Clean(c.File))
	if err != nil {
		return u, "", err
	}
	var same, named []ledger.Entry
	if book := a.ledgerOf(); book != nil {
		code := accounting.Digest(string(raw))
		if _, err := book.Read(time.Time{}, func(e *ledger.Entry) {
			switch {
			case e.Kind != ledger.Run || e.Runs < 1 || e.CPU == nil:
			case e.Code == code:
				same = append(same, *e)
			case e.File != "" && filepath.Base(e.File) == filepath.Base(c.File):
				named = append(named, *e)
			}
		}); err != nil {
			return u, "", err
		}
	}
	from = "the last runs of " + printable(c.File)
	if len(same) == 0 {
		same, from = named, "runs of earlier versions of "+printable(c.File)
	}
	if len(same) == 0 {
		return u, "", fmt.Errorf("the ledger has no run of %s: run it once, or give --duration", printable(c.File))
	}
	const last = 5
	same = same[max(0, len(same)-last):]
	runs, wall, cpu, bytes, held := 0, 0.0, 0.0, 0.0, 0.0
	for _, e := range same {
		runs += e.Runs
		wall += e.Wall
		cpu += *e.CPU
		if e.Bytes != nil {
			bytes += *e.Bytes
			held += e.Wall
		}
	}
	n := float64(runs)
	u = carbon.Usage{Wall: time.Duration(wall / n * float64(time.Second)), CPU: time.Duration(cpu / n * float64(time.Second)), MemoryBytes: -1}
	if held > 0 { // of the runs whose memory is known
		u.MemoryBytes = bytes / held
	}
	if c.Duration > 0 && u.Wall > 0 { // as long as that, at the same pace
		u.CPU = time.Duration(float64(u.CPU) * float64(c.Duration) / float64(u.Wall))
		u.Wall = c.Duration
	}
	return u, fmt.Sprintf("%s, %d of them", from, runs), nil
}

// compare is the same usage at every place.
func (c *carbonEstimateCmd) compare(e *emissions, u carbon.Usage) []estimate {
	here := hardware.Profile("/")
	here.PUE = e.pue
	f := e.model.Footprint(u, here, e.places.Here())
	list := []estimate{{"this machine", placeOf(f), &f}}
	if c.GPU != "" {
		u.GPUs = []carbon.GPU{{Model: c.GPU, Count: c.GPUs}}
	}
	there := u
	if c.GPU != "" {
		there.GPUs = []carbon.GPU{{Model: c.GPU, Count: max(c.GPUs, kaggle.LeastGPUs(c.GPU))}}
	}
	far := e.model.Footprint(there, carbon.Profile{PUE: e.tables.PUE("kaggle")}, e.places.Elsewhere("kaggle", ""))
	list = append(list, estimate{"kaggle", placeOf(far), &far})
	for _, center := range e.tables.RunPodCenters() {
		f := e.model.Footprint(u, carbon.Profile{PUE: e.tables.PUE("runpod")}, e.places.Elsewhere("runpod", center.ID))
		list = append(list, estimate{"runpod", center.ID + ", " + center.Place, &f})
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
