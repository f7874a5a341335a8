// Package carbon converts the measured usage of a run to joules and grams of
// CO2 equivalent. It is pure: no files except its own tables, no clock, no
// network. Every figure names its method and inputs, and the bounds between
// which the true value is expected; an unknown value is absent, never zero.
package carbon

import "time"

// Methods of the whole model.
const (
	// MethodOwn attributes to a run what it used itself: its processor time,
	// and its memory by the byte.
	MethodOwn = "sallyport"
	// MethodCodeCarbon is the model of codecarbon 3.3.2 in its process mode,
	// fed with the same measurements.
	MethodCodeCarbon = "codecarbon"
)

// Methods of a single figure.
const (
	RAPL        = "rapl"          // the processor's own counter
	TDP         = "tdp"           // processor time, and the thermal design power of the model
	PerCPU      = "watts-per-cpu" // processor time, and a constant: the model is not known
	WallTDP     = "wall-tdp"      // half of the power for the whole time: processor time is not known
	PerGigabyte = "watts-per-gb"  // the bytes that the run held
	DIMM        = "dimm"          // CodeCarbon's estimate of memory modules
	GPUCounter  = "gpu-counter"   // NVML, or what else the device counts itself
	BoardPower  = "gpu-board"     // the time that a device was held, and its board power
	MixedGPUs   = "gpu-mixed"     // some of these, some of those
)

// JoulesPerKWh is what a kilowatt-hour is.
const JoulesPerKWh = 3.6e6

// DefaultPerCPU is CodeCarbon's number of watts for each logical processor of
// an unknown model.
const DefaultPerCPU = 4.0

const (
	wattsPerGB = 0.375 // 3 W for 8 GB of DDR4, by Crucial; CodeCarbon's number before version 3
	gigabyte   = 1e9
	gibibyte   = float64(1 << 30) // what CodeCarbon calls a gigabyte
)

// Profile is the hardware that something ran on. Zero is unknown.
type Profile struct {
	CPUModel    string `json:"cpuModel,omitempty"`
	LogicalCPUs int    `json:"logicalCpus,omitempty"`
	Sockets     int    `json:"sockets,omitempty"`
	ARM         bool   `json:"arm,omitempty"`
	// Virtual says that it is a virtual machine, which sees some processors
	// of a chip.
	Virtual     bool  `json:"virtual,omitempty"`
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	PUE         PUE   `json:"-"`
}

// PUE is what a building uses for each joule that a machine in it uses. The
// zero value is 1, exactly.
type PUE struct {
	Factor    float64 `json:"factor"`
	Low, High float64 `json:"-"` // 0: the factor
	Source    string  `json:"source,omitempty"`
}

func (p PUE) values() (low, mid, high float64) {
	if p.Factor <= 0 {
		return 1, 1, 1
	}
	low, high = p.Low, p.High
	if low <= 0 || low > p.Factor {
		low = p.Factor
	}
	if high < p.Factor {
		high = p.Factor
	}
	return low, p.Factor, high
}

// Usage is the measured usage of a run. Where a field says so, negative is
// unknown.
type Usage struct {
	Wall time.Duration
	// CPU is processor time of all its processes; negative is unknown.
	CPU time.Duration
	// Resolution is by how much CPU may be wrong.
	Resolution time.Duration
	// MemoryBytes is the mean of what it held over Wall; negative is unknown.
	MemoryBytes float64
	// Package is what the processor counted meanwhile; nil: nothing.
	Package *Package
	GPUs    []GPU
}

// Package is the energy of the processors of the whole machine, by their own
// counters, while a run ran.
type Package struct {
	Joules float64
	Wall   time.Duration
	// Busy is the processor time of all that ran on the machine in Wall.
	Busy time.Duration
}

// GPU is a kind of accelerator that a run held.
type GPU struct {
	Model string
	Count int           // 0 is 1
	Wall  time.Duration // 0: that of the run
	// Joules is what all of them counted; 0: they did not.
	Joules float64
}

// Figure is one number.
type Figure struct {
	Joules float64 `json:"joules"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Method string  `json:"method"`
	// Inputs are what it was made from, with their units in their names.
	Inputs map[string]any `json:"inputs"`
}

func (f *Figure) scale(p PUE) {
	low, mid, high := p.values()
	f.Joules, f.Low, f.High = f.Joules*mid, f.Low*low, f.High*high
}

// Footprint is the energy and the emissions of a run.
type Footprint struct {
	Method string `json:"method"`
	Energy Energy `json:"energy"`
	// Emissions is null where the place of the run, or its energy, is not known.
	Emissions *Emissions `json:"emissions"`
}

// Energy is the sum of the figures that are there. What is Missing belongs to
// it and is not known: Joules is then less than was used, and High is nil.
// Where no figure is known, neither is the sum: all three are nil.
type Energy struct {
	Joules  *float64 `json:"joules"`
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
	CPU     *Figure  `json:"cpu,omitempty"`
	Memory  *Figure  `json:"memory,omitempty"`
	GPU     *Figure  `json:"gpu,omitempty"`
	Missing []string `json:"missing,omitempty"`
	PUE     *PUE     `json:"pue,omitempty"` // nil: 1
}

// Emissions are of a footprint at a place. High is nil where a part of the
// energy is not known: Grams is then of the known part.
type Emissions struct {
	Grams float64  `json:"grams"`
	Low   float64  `json:"low"`
	High  *float64 `json:"high"`
	Grid  Grid     `json:"grid"`
}

// Grid is the electricity of a place, at a time where it is live.
type Grid struct {
	Country     string  `json:"country,omitempty"` // ISO 3166-1 alpha-3
	CountryName string  `json:"countryName,omitempty"`
	Region      string  `json:"region,omitempty"`
	Cloud       string  `json:"cloud,omitempty"` // the provider, whose region it is
	GramsPerKWh float64 `json:"gramsPerKWh"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Year        int     `json:"year,omitempty"` // 0: now
	Source      string  `json:"source"`
}
