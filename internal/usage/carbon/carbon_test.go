package carbon

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func tables(t testing.TB) *Tables {
	t.Helper()
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// TestModulesAsCodeCarbon: values produced by codecarbon 3.3.2 itself.
func TestModulesAsCodeCarbon(t *testing.T) {
	for _, c := range []struct {
		gb    float64
		arm   bool
		count int
		watts float64
	}{
		{0.5, false, 1, 10}, {4, false, 2, 10}, {16, false, 2, 10}, {17, false, 4, 20}, {64, false, 4, 20},
		{65, false, 8, 38}, {128, false, 8, 38}, {129, false, 9, 42}, {256, false, 8, 38}, {512, false, 8, 38},
		{755, false, 12, 54}, {1024, false, 8, 38}, {2048, false, 16, 70}, {4096, false, 32, 126},
		{1, true, 1, 3}, {32, true, 4, 6}, {128, true, 8, 11.4}, {1024, true, 8, 11.4},
	} {
		count, watts := Modules(c.gb, c.arm)
		if count != c.count || !near(watts, c.watts) {
			t.Errorf("Modules(%v, %v) = %d, %v; want %d, %v", c.gb, c.arm, count, watts, c.count, c.watts)
		}
	}
}

func TestMachinePowerAsCodeCarbon(t *testing.T) {
	for load, want := range map[float64]float64{0: 10, 10: 10.09, 25: 11.40625, 50: 21.25, 75: 47.96875, 100: 100} {
		if got := MachinePower(100, load/100); math.Abs(got-want) > 1e-3 {
			t.Errorf("load %v: %v W, want %v", load, got, want)
		}
	}
}

func TestTDP(t *testing.T) {
	all := tables(t)
	if n := len(all.cpus().names); n != strings.Count(string(cpuTable), "\n")-1 || n < 4900 {
		t.Errorf("%d processors were read", n)
	}
	for _, c := range []struct {
		model string
		watts float64
		known bool
	}{
		{"Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", 135, true},
		{"AMD EPYC 7763 64-Core Processor", 280, true},
		{"Intel(R) Xeon(R) Processor", 0, false},
		{"Intel(R) Xeon(R) Processor @ 2.50GHz", 0, false},
		{"12th Gen Intel(R) Core(TM) i7-12700", 0, false},
		{"Neoverse-N1", 0, false},
		{"1075t", 95, true},
		{"", 0, false},
	} {
		watts, known := all.TDP(c.model)
		if known != c.known || known && watts != c.watts {
			t.Errorf("%q: %v, %v; want %v, %v", c.model, watts, known, c.watts, c.known)
		}
	}
}

func TestGrid(t *testing.T) {
	all := tables(t)
	for _, c := range []struct {
		place             string
		grams, codecarbon float64
		year              int
	}{
		{"FRA", 56.039, 56.039, 2023},
		{"usa", 369.473, 369.473, 2023},
		{"DEU", 380.95, 380.95, 2023},
		{"USA/california", 179.06420631253, 179.06420631253, 2023},
		{"USA/CA", 179.06420631253, 179.06420631253, 2023},
		{"CAN/Quebec", 3.937355026597341, 3.937355026597341, 2023},
		{"CAN/ab", 627.6747998509918, 627.6747998509918, 2023},
		{"SWE/SE4", 24.7, 24.7, 2025},
		{"NOR/NO4", 51.7, 51.7, 2025},
		{"CHN/Beijing Municipality", 555.4, 555.4, 2023},
		{"CHN/Guangdong", 441.9, 441.9, 2023},
		{"gcp/europe-west9", 34, 34, 2023},
		{"gcp/us-central1", 430, 430, 2023},
		{"CAF", 26, 0, 2022}, // water power is not free
	} {
		l, err := ParseLocation(c.place)
		if err != nil {
			t.Fatal(err)
		}
		own, err := all.Grid(l)
		if err != nil {
			t.Errorf("%s: %v", c.place, err)
			continue
		}
		theirs, _ := all.GridAsCodeCarbon(l)
		if math.Abs(own.GramsPerKWh-c.grams) > 1e-8 || math.Abs(theirs.GramsPerKWh-c.codecarbon) > 1e-8 {
			t.Errorf("%s: %v and %v; want %v and %v", c.place, own.GramsPerKWh, theirs.GramsPerKWh, c.grams, c.codecarbon)
		}
		if own.Source == "" || c.year != 0 && c.year != own.Year {
			t.Errorf("%s: year %d, source %q", c.place, own.Year, own.Source)
		}
		if own.CountryName == "" || own.Low > own.GramsPerKWh || own.High < own.GramsPerKWh {
			t.Errorf("%s: %+v", c.place, own)
		}
	}
	for _, place := range []string{"XXX", "USA/atlantis", "gcp/mars-1", "FRA/paris"} {
		l, err := ParseLocation(place)
		if err != nil {
			t.Fatal(err)
		}
		if g, err := all.Grid(l); err == nil {
			t.Errorf("%s has an intensity: %+v", place, g)
		}
	}
	for _, text := range []string{"", "France", "FR", "gcp", "gcp/", "F1A", "/x"} {
		if l, err := ParseLocation(text); err == nil {
			t.Errorf("%q is %+v", text, l)
		}
	}
}

func TestRunPod(t *testing.T) {
	all := tables(t)
	centers := all.RunPodCenters()
	if len(centers) != 26 {
		t.Errorf("%d data centers", len(centers))
	}
	for _, c := range centers {
		if _, err := all.Grid(c.Location); err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
	if c, ok := all.RunPod("ca-mtl-1"); !ok || c.Location.String() != "CAN/quebec" {
		t.Errorf("%+v", c)
	}
	if c, ok := all.RunPod("US-ZZ-1"); ok {
		t.Errorf("an unknown data center is %+v", c)
	}
	if p := all.PUE("kaggle"); p.Factor < 1 || p.Source == "" {
		t.Errorf("%+v", p)
	}
}

func TestGPU(t *testing.T) {
	all := tables(t)
	for model, watts := range map[string]float64{
		"Tesla T4": 70, "Tesla P100-PCIE-16GB": 250, "NVIDIA A100-SXM4-80GB": 400, "NVIDIA A100 80GB PCIe": 300,
		"NVIDIA H100 80GB HBM3": 700, "NVIDIA H100 PCIe": 350, "NVIDIA GeForce RTX 4090": 450, "NVIDIA RTX 4000 Ada Generation": 130,
		"NVIDIA RTX 4000 SFF Ada Generation": 70, "NVIDIA RTX 6000 Ada Generation": 300, "NVIDIA L40S": 350, "NVIDIA L40": 300, "NVIDIA L4": 72,
		"NVIDIA H200": 700, "NVIDIA GeForce RTX 3080 Ti": 350, "NVIDIA GeForce RTX 3080": 320, "Quadro RTX 6000": 295,
		"NVIDIA RTX PRO 6000 Blackwell Workstation Edition": 600, "NvidiaTeslaT4": 70, "a100": 400, "T4 x2": 70,
	} {
		b, ok := all.GPU(model)
		if !ok || b.Watts != watts || b.Source == "" || b.Year < 2010 {
			t.Errorf("%s: %+v, %v; want %v W", model, b, ok, watts)
		}
	}
	for _, model := range []string{"", "RTX", "NVIDIA", "Radeon HD 5870", "TPU v5e", "gpu"} {
		if b, ok := all.GPU(model); ok {
			t.Errorf("%q is %+v", model, b)
		}
	}
	for _, b := range all.Boards() {
		if got, ok := all.GPU(b.Model); !ok || got.Watts != b.Watts {
			t.Errorf("%s does not find itself: %+v", b.Model, got)
		}
	}
}

var intel = Profile{CPUModel: "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", LogicalCPUs: 28, Sockets: 1, MemoryBytes: 64 << 30}

func TestCodeCarbonProcessMode(t *testing.T) {
	m := New(tables(t), MethodCodeCarbon)
	// What codecarbon's process mode says of one busy thread for a minute:
	// TDP x (cpu seconds / seconds / cpus), and the least of two modules.
	f := m.Footprint(Usage{Wall: time.Minute, CPU: time.Minute, MemoryBytes: 1 << 30}, intel, nil)
	if want := 135.0 / 28 * 60; !near(f.Energy.CPU.Joules, want) {
		t.Errorf("CPU %v J, want %v", f.Energy.CPU.Joules, want)
	}
	if want := 10.0 * 60; !near(f.Energy.Memory.Joules, want) || f.Energy.Memory.Method != DIMM {
		t.Errorf("memory %v J, want %v", f.Energy.Memory.Joules, want)
	}
	if !near(*f.Energy.Joules, f.Energy.CPU.Joules+f.Energy.Memory.Joules) || f.Method != MethodCodeCarbon {
		t.Errorf("%+v", f)
	}
	for name, c := range map[string]struct {
		p    Profile
		want float64
	}{
		"unknown model":  {Profile{CPUModel: "Intel(R) Xeon(R) Processor", LogicalCPUs: 2}, 4},
		"no model":       {Profile{LogicalCPUs: 2}, 42.5},
		"two sockets":    {Profile{CPUModel: intel.CPUModel, LogicalCPUs: 56, Sockets: 2}, 135.0 * 2 / 56},
		"virtual or not": {Profile{CPUModel: intel.CPUModel, LogicalCPUs: 2, Virtual: true}, 67.5},
	} {
		if got, _ := m.Watts(c.p); !near(got, c.want) {
			t.Errorf("%s: %v W, want %v", name, got, c.want)
		}
	}
}

// A machine that does not say how many processors it has takes something all the
// same, and a second of one processor is no second of all.
func TestCodeCarbonElsewhere(t *testing.T) {
	m := New(tables(t), MethodCodeCarbon)
	for model, want := range map[string]float64{
		"Intel(R) Xeon(R) CPU @ 2.00GHz": 4, "": 4, "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz": 4, "AMD EPYC 7763 64-Core Processor": 280. / 128,
	} {
		f := m.Footprint(Usage{Wall: 20 * time.Second, CPU: 10 * time.Second, MemoryBytes: -1}, Profile{CPUModel: model}, nil)
		if f.Energy.CPU == nil || !near(f.Energy.CPU.Joules, 10*want) {
			t.Errorf("%q: %+v, want %v W", model, f.Energy.CPU, want)
		}
	}
}

func TestOwnWatts(t *testing.T) {
	m := New(tables(t), "")
	for name, c := range map[string]struct {
		p    Profile
		want float64
	}{
		"known":                      {intel, 135.0 / 28},
		"unknown":                    {Profile{CPUModel: "Neoverse-N1", LogicalCPUs: 4}, 4},
		"virtual":                    {Profile{CPUModel: intel.CPUModel, LogicalCPUs: 2, Virtual: true}, 4},
		"virtual, cores in the name": {Profile{CPUModel: "AMD EPYC 7763 64-Core Processor", LogicalCPUs: 2, Virtual: true}, 280.0 / 128},
		"elsewhere":                  {Profile{CPUModel: "AMD EPYC 7763 64-Core Processor"}, 280.0 / 128},
		"nothing known":              {Profile{}, 4},
	} {
		if got, _ := m.Watts(c.p); !near(got, c.want) {
			t.Errorf("%s: %v W, want %v", name, got, c.want)
		}
	}
}

func TestFootprint(t *testing.T) {
	all := tables(t)
	m := New(all, "")
	france, err := all.Grid(Location{Country: "FRA"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, f Footprint) {
		t.Helper()
		var sum float64
		for _, part := range []*Figure{f.Energy.CPU, f.Energy.Memory, f.Energy.GPU} {
			if part == nil {
				continue
			}
			sum += part.Joules
			if part.Method == "" || len(part.Inputs) == 0 || part.Low > part.Joules || part.High < part.Joules || part.Low < 0 {
				t.Errorf("%s: %+v", name, part)
			}
		}
		if !near(sum, *f.Energy.Joules) || *f.Energy.Low > *f.Energy.Joules || *f.Energy.High < *f.Energy.Joules {
			t.Errorf("%s: %v of %v to %v, sum %v", name, *f.Energy.Joules, *f.Energy.Low, *f.Energy.High, sum)
		}
		if _, err := json.Marshal(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// 1 GB for a second, and half a second of processor time.
	u := Usage{Wall: time.Second, CPU: time.Second / 2, MemoryBytes: 1e9}
	f := m.Footprint(u, intel, &france)
	check("plain", f)
	if !near(f.Energy.CPU.Joules, 135.0/28/2) || f.Energy.CPU.Method != TDP || !near(f.Energy.Memory.Joules, 0.375) || f.Energy.GPU != nil || f.Energy.Missing != nil {
		t.Errorf("%+v", f)
	}
	if e := f.Emissions; e == nil || !near(e.Grams, *f.Energy.Joules/3.6e6*56.039) || e.Low > e.Grams || *e.High < e.Grams {
		t.Errorf("%+v", e)
	}

	// Nowhere: energy, and null emissions.
	f = m.Footprint(u, intel, nil)
	raw, _ := json.Marshal(f)
	if f.Emissions != nil || *f.Energy.Joules == 0 || !strings.Contains(string(raw), `"emissions":null`) {
		t.Errorf("%s", raw)
	}

	// What is not measured is missing, and not zero.
	f = m.Footprint(Usage{Wall: time.Second, CPU: -1, MemoryBytes: -1, GPUs: []GPU{{Model: "Voodoo 2"}, {}}}, Profile{}, nil)
	if f.Energy.CPU != nil || f.Energy.Memory != nil || f.Energy.GPU != nil || strings.Join(f.Energy.Missing, ";") != "gpu Voodoo 2;gpu of an unknown model;cpu;memory" {
		t.Errorf("%+v", f)
	}
	// Nor is the sum, and there are no emissions of it, wherever it was.
	f = m.Footprint(Usage{CPU: -1, MemoryBytes: 1e9, GPUs: []GPU{{Model: "Tesla T4"}}}, Profile{}, &france)
	raw, _ = json.Marshal(f)
	if want := `{"method":"sallyport","energy":{"joules":null,"low":null,"high":null,"missing":["gpu Tesla T4","cpu","memory"]},"emissions":null}`; string(raw) != want {
		t.Errorf("nothing is known: %s, want %s", raw, want)
	}
	// Of a sum with an unknown part there is no upper bound.
	f = m.Footprint(Usage{Wall: time.Second, CPU: time.Second, MemoryBytes: -1}, intel, &france)
	if e := f.Energy; e.Joules == nil || !near(*e.Joules, e.CPU.Joules) || e.High != nil || strings.Join(e.Missing, ";") != "memory" || f.Emissions == nil || f.Emissions.High != nil {
		t.Errorf("memory is not known: %+v, %+v", e, f.Emissions)
	}
	f = m.Footprint(Usage{Wall: 2 * time.Second, CPU: -1, MemoryBytes: 0}, intel, nil)
	check("no CPU time", f)
	if f.Energy.CPU == nil || f.Energy.CPU.Method != WallTDP || f.Energy.CPU.Low != 0 || !near(f.Energy.CPU.Joules, 135) {
		t.Errorf("%+v", f.Energy.CPU)
	}

	// Resolution widens.
	sharp, blunt := m.Footprint(u, intel, nil), u
	blunt.Resolution = 100 * time.Millisecond
	if got := m.Footprint(blunt, intel, nil); *got.Energy.Joules != *sharp.Energy.Joules || got.Energy.CPU.Low >= sharp.Energy.CPU.Low || got.Energy.CPU.High <= sharp.Energy.CPU.High {
		t.Errorf("%+v against %+v", got.Energy.CPU, sharp.Energy.CPU)
	}

	// GPUs: counted, by board, both.
	u.GPUs = []GPU{{Model: "Tesla T4", Count: 2}}
	f = m.Footprint(u, intel, nil)
	check("board", f)
	if f.Energy.GPU.Method != BoardPower || !near(f.Energy.GPU.Joules, 140) {
		t.Errorf("%+v", f.Energy.GPU)
	}
	u.GPUs = append(u.GPUs, GPU{Model: "Tesla T4", Joules: 33, Wall: time.Minute})
	f = m.Footprint(u, intel, nil)
	check("mixed", f)
	if f.Energy.GPU.Method != MixedGPUs || !near(f.Energy.GPU.Joules, 173) || len(f.Energy.GPU.Inputs["devices"].([]any)) != 2 {
		t.Errorf("%+v", f.Energy.GPU)
	}

	// A building.
	p := intel
	p.PUE = all.PUE("kaggle")
	bare, housed := m.Footprint(u, intel, &france), m.Footprint(u, p, &france)
	check("housed", housed)
	if !near(*housed.Energy.Joules, 1.09**bare.Energy.Joules) || housed.Energy.PUE == nil || housed.Energy.PUE.Source == "" || bare.Energy.PUE != nil {
		t.Errorf("%+v", housed)
	}
}

func TestRAPL(t *testing.T) {
	m := New(tables(t), "")
	p := Profile{CPUModel: "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", LogicalCPUs: 10}
	run := func(joules float64, busy, cpu time.Duration) *Figure {
		return m.Footprint(Usage{Wall: 10 * time.Second, CPU: cpu, MemoryBytes: -1,
			Package: &Package{Joules: joules, Wall: 10 * time.Second, Busy: busy}}, p, nil).Energy.CPU
	}
	// Idle: 10 % of 135 W for ten seconds is 135 J. A run that used one of ten
	// processors, half of what was busy, has a tenth of that and half of the rest.
	f := run(535, 20*time.Second, 10*time.Second)
	if f.Method != RAPL || !near(f.Joules, 13.5+200) || f.Low > 54 || f.High < 267 {
		t.Errorf("%+v", f)
	}
	// Alone on the machine it has all but the idle part of the others.
	if f := run(535, 10*time.Second, 10*time.Second); !near(f.Joules, 13.5+400) {
		t.Errorf("%+v", f)
	}
	// Never more than there was, whatever the clocks say.
	if f := run(535, time.Second, 200*time.Second); !near(f.Joules, 535) {
		t.Errorf("%+v", f)
	}
	// No reading: the next method.
	if f := run(0, time.Second, time.Second); f.Method != TDP {
		t.Errorf("%+v", f)
	}
	// CodeCarbon charges a process for the whole machine.
	theirs := New(tables(t), MethodCodeCarbon).Footprint(Usage{Wall: 5 * time.Second, CPU: time.Second, MemoryBytes: -1,
		Package: &Package{Joules: 535, Wall: 10 * time.Second, Busy: time.Second}}, p, nil).Energy.CPU
	if theirs.Method != RAPL || !near(theirs.Joules, 267.5) {
		t.Errorf("%+v", theirs)
	}
	// The sum over all runs of an interval is what was counted.
	sum := run(535, 100*time.Second, 60*time.Second).Joules + run(535, 100*time.Second, 40*time.Second).Joules
	if !near(sum, 535) {
		t.Errorf("two runs that used everything have %v J of 535", sum)
	}
}

// FuzzNames: names come from sandboxes and services.
func FuzzNames(f *testing.F) {
	all := tables(f)
	f.Add("AMD EPYC 7763 64-Core Processor", "Tesla T4", "USA/CA")
	f.Add("999999999999999999999-Core", "\xff", "gcp/\x00")
	m := New(all, "")
	f.Fuzz(func(t *testing.T, cpu, gpu, place string) {
		l, err := ParseLocation(place)
		var grid *Grid
		if err == nil {
			if g, err := all.Grid(l); err == nil {
				grid = &g
			}
		}
		fp := m.Footprint(Usage{Wall: time.Second, CPU: time.Second, GPUs: []GPU{{Model: gpu}}},
			Profile{CPUModel: cpu, LogicalCPUs: 4, Virtual: true}, grid)
		if math.IsNaN(*fp.Energy.Joules) || math.IsInf(fp.Energy.CPU.High, 0) || *fp.Energy.Joules < 0 || fp.Energy.CPU == nil {
			t.Errorf("%+v", fp)
		}
	})
}
