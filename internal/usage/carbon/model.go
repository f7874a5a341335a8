package carbon

import (
	"math"
	"time"
)

// How far the truth may be from an estimate. These are conventions, argued in
// docs/carbon.md.
const (
	raplSpread            = 0.05 // of the counter itself
	nvmlSpread            = 0.05 // as NVIDIA states it
	tdpLow, tdpHigh       = 0.5, 1.3
	perCPULow, perCPUHigh = 0.5, 2.5
	memoryLow, memoryHigh = 0.5, 2.0
	boardLow, boardHigh   = 0.15, 1.0 // of the board power: idle to all of it
	// idleShare is the part of the thermal design power that a processor
	// takes when it has nothing to do.
	idleShare = 0.1
)

// A Model makes footprints. It is safe for concurrent use.
type Model struct {
	tables *Tables
	method string
}

// New returns a model with a method, empty: MethodOwn.
func New(tables *Tables, method string) *Model {
	if method == "" {
		method = MethodOwn
	}
	return &Model{tables, method}
}

// Footprint is that of a run. A nil grid: it is not known where it ran.
func (m *Model) Footprint(u Usage, p Profile, grid *Grid) Footprint {
	f := Footprint{Method: m.method}
	e := &f.Energy
	e.CPU, e.Memory = m.cpu(u, p), m.memory(u, p)
	e.GPU, e.Missing = m.gpu(u)
	if e.CPU == nil {
		e.Missing = append(e.Missing, "cpu")
	}
	if e.Memory == nil {
		e.Missing = append(e.Missing, "memory")
	}
	if p.PUE.Factor > 0 && p.PUE.Factor != 1 {
		pue := p.PUE
		e.PUE = &pue
	}
	var joules, low, high float64
	known := false
	for _, part := range []*Figure{e.CPU, e.Memory, e.GPU} {
		if part == nil {
			continue
		}
		known = true
		part.scale(p.PUE)
		joules, low, high = joules+part.Joules, low+part.Low, high+part.High
	}
	if known {
		e.Joules, e.Low = &joules, &low
		if len(e.Missing) == 0 {
			e.High = &high
		}
	}
	f.Emissions = e.emit(grid)
	return f
}

// emit is what an energy emits at a place; nil where either is not known.
func (e *Energy) emit(grid *Grid) *Emissions {
	if grid == nil || e.Joules == nil {
		return nil
	}
	m := &Emissions{Grams: *e.Joules / JoulesPerKWh * grid.GramsPerKWh, Low: *e.Low / JoulesPerKWh * grid.Low, Grid: *grid}
	if e.High != nil {
		high := *e.High / JoulesPerKWh * grid.High
		m.High = &high
	}
	return m
}

// Watts is the power of one logical processor that is busy, and the thermal
// design power that it was made from (0: the model is not known).
func (m *Model) Watts(p Profile) (perCPU, tdp float64) {
	n := p.LogicalCPUs
	tdp, known := m.tables.TDP(p.CPUModel)
	if m.method == MethodCodeCarbon {
		if n < 1 { // of another machine, which did not say
			n = threadsOf(p.CPUModel)
		}
		switch {
		case n < 1:
			return DefaultPerCPU, 0
		case !known && p.CPUModel == "":
			return codecarbonUnknown / float64(n), 0
		case !known:
			return DefaultPerCPU, 0
		}
		return tdp * float64(max(1, p.Sockets)) / float64(n), tdp
	}
	if !known {
		return DefaultPerCPU, 0
	}
	// What the model's name says of itself is better than what a virtual
	// machine sees of it.
	if threads := threadsOf(p.CPUModel); threads > 0 && (p.Virtual || n < 1) {
		return tdp / float64(threads), tdp
	}
	if p.Virtual || n < 1 {
		return DefaultPerCPU, 0
	}
	return tdp * float64(max(1, p.Sockets)) / float64(n), tdp
}

// codecarbonUnknown are the watts that CodeCarbon takes for a processor whose
// model cannot be read.
const codecarbonUnknown = 85.0

func (m *Model) cpu(u Usage, p Profile) *Figure {
	perCPU, tdp := m.Watts(p)
	if k := u.Package; m.method == MethodCodeCarbon && k != nil && k.Joules > 0 && k.Wall > 0 {
		// Where there are counters, CodeCarbon counts the whole machine, also
		// for one process.
		joules := k.Joules * u.Wall.Seconds() / k.Wall.Seconds()
		return &Figure{Joules: joules, Low: joules * (1 - raplSpread), High: joules * (1 + raplSpread), Method: RAPL,
			Inputs: map[string]any{"packageJoules": round(k.Joules), "packageSeconds": round(k.Wall.Seconds()), "wallSeconds": round(u.Wall.Seconds()), "of": "the whole machine"}}
	}
	if f := rapl(u, p, perCPU); f != nil {
		return f
	}
	method, low, high := TDP, tdpLow, tdpHigh
	inputs := map[string]any{"wattsPerCpu": round(perCPU)}
	if p.CPUModel != "" {
		inputs["cpuModel"] = p.CPUModel
	}
	if tdp > 0 {
		inputs["tdpWatts"] = tdp
	} else {
		method, low, high = PerCPU, perCPULow, perCPUHigh
	}
	if p.LogicalCPUs > 0 {
		inputs["logicalCpus"] = p.LogicalCPUs
	}
	if u.CPU < 0 {
		if u.Wall <= 0 || p.LogicalCPUs < 1 {
			return nil
		}
		all := perCPU * float64(p.LogicalCPUs) * u.Wall.Seconds()
		inputs["wallSeconds"] = round(u.Wall.Seconds())
		return &Figure{Joules: all / 2, Low: 0, High: all * high, Method: WallTDP, Inputs: inputs}
	}
	inputs["cpuSeconds"] = round(u.CPU.Seconds())
	least := max(0, u.CPU-u.Resolution)
	return &Figure{
		Joules: perCPU * u.CPU.Seconds(), Low: perCPU * least.Seconds() * low,
		High:   perCPU * (u.CPU + u.Resolution).Seconds() * high,
		Method: method, Inputs: inputs,
	}
}

// rapl attributes a part of what the processors counted: of the energy that
// they take in any case, the run's part of all processor time there was; of
// the rest, its part of the processor time that was used. nil where there is
// nothing to attribute.
func rapl(u Usage, p Profile, perCPU float64) *Figure {
	k := u.Package
	if k == nil || k.Joules <= 0 || k.Wall <= 0 || u.CPU < 0 || p.LogicalCPUs < 1 {
		return nil
	}
	n := float64(p.LogicalCPUs)
	whole := n * k.Wall.Seconds()
	capacity := min(1, u.CPU.Seconds()/whole)
	share := capacity
	if busy := max(k.Busy, u.CPU).Seconds(); busy > 0 {
		share = min(1, u.CPU.Seconds()/busy)
	}
	idle := min(k.Joules, idleShare*perCPU*whole)
	joules := idle*capacity + (k.Joules-idle)*share
	return &Figure{
		Joules: joules,
		Low:    min(joules, k.Joules*capacity) * (1 - raplSpread),
		High:   max(joules, k.Joules*share) * (1 + raplSpread),
		Method: RAPL,
		Inputs: map[string]any{
			"packageJoules": round(k.Joules), "packageSeconds": round(k.Wall.Seconds()),
			"machineCpuSeconds": round(k.Busy.Seconds()), "cpuSeconds": round(u.CPU.Seconds()),
			"idleWatts": round(idleShare * perCPU * n), "logicalCpus": p.LogicalCPUs,
		},
	}
}

func (m *Model) memory(u Usage, p Profile) *Figure {
	if u.MemoryBytes < 0 || u.Wall <= 0 {
		return nil
	}
	seconds := u.Wall.Seconds()
	if m.method == MethodCodeCarbon {
		modules, watts := Modules(u.MemoryBytes/gibibyte, p.ARM)
		joules := watts * seconds
		return &Figure{Joules: joules, Low: joules * memoryLow, High: joules * memoryHigh, Method: DIMM,
			Inputs: map[string]any{"meanBytes": math.Round(u.MemoryBytes), "modules": modules, "watts": watts, "wallSeconds": round(seconds)}}
	}
	joules := u.MemoryBytes / gigabyte * wattsPerGB * seconds
	return &Figure{Joules: joules, Low: joules * memoryLow, High: joules * memoryHigh, Method: PerGigabyte,
		Inputs: map[string]any{"meanBytes": math.Round(u.MemoryBytes), "wattsPerGB": wattsPerGB, "wallSeconds": round(seconds)}}
}

func (m *Model) gpu(u Usage) (sum *Figure, missing []string) {
	for _, g := range u.GPUs {
		one := m.device(g, u.Wall)
		if one == nil {
			name := g.Model
			if name == "" {
				name = "of an unknown model"
			}
			missing = append(missing, "gpu "+name)
			continue
		}
		if sum == nil {
			sum = one
			continue
		}
		sum.Joules, sum.Low, sum.High = sum.Joules+one.Joules, sum.Low+one.Low, sum.High+one.High
		if sum.Method != one.Method {
			sum.Method = MixedGPUs
		}
		devices, _ := sum.Inputs["devices"].([]any)
		sum.Inputs["devices"] = append(devices, one.Inputs["devices"].([]any)...)
	}
	return sum, missing
}

// device returns the figure of one kind of accelerator; nil if it is unknown.
func (m *Model) device(g GPU, wall time.Duration) *Figure {
	if g.Wall > 0 {
		wall = g.Wall
	}
	count := max(1, g.Count)
	about := map[string]any{"model": g.Model, "count": count, "wallSeconds": round(wall.Seconds())}
	f := &Figure{Inputs: map[string]any{"devices": []any{about}}}
	if g.Joules > 0 {
		about["countedJoules"] = round(g.Joules)
		f.Method, f.Joules, f.Low, f.High = GPUCounter, g.Joules, g.Joules*(1-nvmlSpread), g.Joules*(1+nvmlSpread)
		return f
	}
	board, ok := m.tables.GPU(g.Model)
	if !ok || wall <= 0 {
		return nil
	}
	all := board.Watts * float64(count) * wall.Seconds()
	about["boardWatts"], about["source"], about["year"] = board.Watts, board.Source, board.Year
	f.Method, f.Joules, f.Low, f.High = BoardPower, all, all*boardLow, all*boardHigh
	return f
}

// Modules is CodeCarbon's estimate of how many memory modules a machine of so
// many gigabytes has, and of what they take.
func Modules(gb float64, arm bool) (count int, watts float64) {
	switch {
	case gb <= 2:
		count = 1
	case gb <= 16:
		count = 2
	case gb <= 64:
		count = 4
	case gb <= 128:
		count = 8
	default:
		count = 8
		for _, size := range []float64{128, 64, 32, 16, 8, 4} {
			if size <= gb/8 {
				count = min(32, int(math.Ceil(gb/size)))
				break
			}
		}
	}
	each, least := 5.0, 10.0
	if arm {
		each, least = 1.5, 3
	}
	for i := range count {
		switch {
		case i < 4:
			watts += each
		case i < 8:
			watts += each * 0.9
		case i < 16:
			watts += each * 0.8
		default:
			watts += each * 0.7
		}
	}
	return count, max(least, watts)
}

// MachinePower is CodeCarbon's power of a whole machine's processor under a
// load between 0 and 1.
func MachinePower(tdp, load float64) float64 { return tdp * (idleShare + (1-idleShare)*load*load*load) }

// round keeps what is significant of an input.
func round(f float64) float64 {
	if f == 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(f))))
	return math.Round(f*scale) / scale
}
