package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sallyport/sallyport/internal/accounting"
	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon"
)

// outboxStatus describes what an outbox holds.
type outboxStatus = codecarbon.Status

type carbonEstimateCmd struct {
	Duration time.Duration `help:"Duration of the program (a number is seconds)." type:"seconds" placeholder:"DURATION"`
	CPUs     float64       `help:"Processors that are busy during that time." name:"cpus" default:"1" placeholder:"N"`
	Memory   float64       `help:"Memory that the program uses, in GB." default:"1" placeholder:"GB"`
	GPU      string        `help:"Accelerator on batch services, such as 'RTX 4090'." name:"gpu" placeholder:"MODEL"`
	GPUs     int           `help:"Number of accelerators. A Kaggle machine with T4s has two, and both are counted." name:"gpus" default:"1" placeholder:"N"`
	File     string        `help:"Take duration, processors and memory from the last runs of this program." placeholder:"FILE"`
	JSON     bool          `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*carbonEstimateCmd) Help() string {
	return `--gpu applies to batch services: sandboxes on this machine have no accelerator. The estimate assumes the same duration everywhere; if you know that one is faster, run it again with another --duration. Emissions on Kaggle need carbon.kaggle.location.

Example:
  sallyport carbon estimate --duration 10m --gpu T4
  sallyport carbon estimate --file train.py --gpu 'RTX 4090'`
}

// Run implements the command.
func (c *carbonEstimateCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	e, err := u.Emissions()
	if err != nil {
		return err
	}
	used, from, err := c.usage(u)
	if err != nil {
		return err
	}
	if c.GPU != "" {
		if _, ok := e.Tables.GPU(c.GPU); !ok {
			return fmt.Errorf("the power of %q is unknown; use the manufacturer's name, such as 'Tesla T4', 'A100 SXM4' or 'RTX 4090'", c.GPU)
		}
		if c.GPUs < 1 {
			return fmt.Errorf("--gpus %d: at least 1", c.GPUs)
		}
	}
	e.Places.Refresh(u.ctx)
	list := e.Estimates(used, c.GPU, c.GPUs)
	memory, known := "unknown", (*float64)(nil)
	if used.MemoryBytes >= 0 {
		memory, known = withUnit(used.MemoryBytes, "B"), &used.MemoryBytes
	}
	if c.JSON {
		return u.printJSON(struct {
			From  string         `json:"from"`
			Usage estimateOf     `json:"usage"`
			List  []app.Estimate `json:"engines"`
		}{from, estimateOf{used.Wall.Seconds(), used.CPU.Seconds(), known, c.GPU}, list})
	}
	fmt.Fprintf(u.stdio.Out, "For %s, %s of processor time, %s of memory (%s):\n\n", used.Wall.Round(time.Millisecond), used.CPU.Round(time.Millisecond), memory, from)
	t := u.table("ENGINE", "PLACE", "ENERGY", "(RANGE)", "CO2E", "(RANGE)")
	for _, one := range list {
		energy, grams, span := one.Footprint.Energy, "unknown", ""
		if m := one.Footprint.Emissions; m != nil {
			grams, span = sumOf(&m.Grams, m.High != nil, "g"), between(&m.Low, m.High, "g")
		}
		t.Row(one.Engine, one.Place, sumOf(energy.Joules, len(energy.Missing) == 0, "J"), between(energy.Low, energy.High, "J"), grams, span)
	}
	return t.Write(u.stdio.Out)
}

// estimateOf is the usage that is estimated.
type estimateOf struct {
	WallSeconds float64  `json:"wallSeconds"`
	CPUSeconds  float64  `json:"cpuSeconds"`
	MemoryBytes *float64 `json:"memoryBytes"` // nil: not known
	GPU         string   `json:"gpu,omitempty"`
}

// usage returns the usage to estimate, and where it comes from.
func (c *carbonEstimateCmd) usage(u *ui) (used carbon.Usage, from string, err error) {
	if c.File == "" {
		if c.Duration <= 0 {
			return used, "", fmt.Errorf("give a duration (--duration 10m), or a program whose last runs to use (--file x.py)")
		}
		if c.CPUs < 0 || c.Memory < 0 {
			return used, "", fmt.Errorf("--cpus and --memory must not be negative")
		}
		return carbon.Usage{Wall: c.Duration, CPU: time.Duration(c.CPUs * float64(c.Duration)), MemoryBytes: c.Memory * 1e9}, "as given", nil
	}
	raw, err := os.ReadFile(filepath.Clean(c.File))
	if err != nil {
		return used, "", err
	}
	used, runs, earlier, err := accounting.LastRuns(u.Ledger(), string(raw), c.File)
	if err != nil {
		return used, "", err
	}
	if runs == 0 {
		return used, "", fmt.Errorf("the ledger has no run of %s: run it once, or give --duration", printable(c.File))
	}
	from = "the last runs of "
	if earlier {
		from = "runs of earlier versions of "
	}
	if c.Duration > 0 && used.Wall > 0 { // as long as that, at the same pace
		used.CPU = time.Duration(float64(used.CPU) * float64(c.Duration) / float64(used.Wall))
		used.Wall = c.Duration
	}
	return used, fmt.Sprintf("%s%s, %d of them", from, printable(c.File), runs), nil
}
