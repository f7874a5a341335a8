package carbon

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

//go:generate go run ../../../scripts/carbontables -from ../../../data/carbon -to tables

//go:embed tables/cpu_power.csv
var cpuTable []byte

//go:embed tables/gpu_power.csv
var gpuTable []byte

//go:embed tables/grid.csv
var gridTable []byte

//go:embed tables/sources.csv
var sourceTable []byte

//go:embed tables/runpod.csv
var runpodTable []byte

//go:embed tables/pue.csv
var pueTable []byte

// Tables are the numbers that others have measured and published. They are
// not modified, and safe for concurrent use.
type Tables struct {
	cpus    func() *cpus // read when a processor is looked for
	boards  []Board
	grid    map[string]gridLine // by key
	cloud   map[string]bool     // providers
	centers map[string]DataCenter
	pue     map[string]PUE
}

// cpus are the processors, the largest table by far.
type cpus struct {
	exact map[string]float64 // TDP by lower-case name
	names [][2]string        // and the power, as text

	mu    sync.Mutex
	found map[string]float64 // by what was asked; negative: not known
}

// Board is the power of an accelerator, by its maker.
type Board struct {
	Model  string
	Watts  float64
	Year   int
	Source string
	words  []string
}

type gridLine struct {
	grid   Grid
	listed float64
}

// DataCenter is one of RunPod's.
type DataCenter struct {
	ID       string
	Location Location
	Place    string
}

// Load reads the tables that are in the executable.
func Load() (*Tables, error) {
	t := &Tables{cpus: sync.OnceValue(readCPUs), grid: map[string]gridLine{}, cloud: map[string]bool{},
		centers: map[string]DataCenter{}, pue: map[string]PUE{}}
	for _, step := range []struct {
		name string
		raw  []byte
		row  func([]string) error
	}{
		{"gpu_power", gpuTable, t.addGPU},
		{"grid", gridTable, t.addGrid(sourcesOf(sourceTable))},
		{"runpod", runpodTable, t.addCenter},
		{"pue", pueTable, t.addPUE},
	} {
		records, err := csv.NewReader(bytes.NewReader(step.raw)).ReadAll()
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", step.name, err)
		}
		for _, r := range records[1:] {
			if err := step.row(r); err != nil {
				return nil, fmt.Errorf("table %s: %q: %w", step.name, r[0], err)
			}
		}
	}
	return t, nil
}

func sourcesOf(raw []byte) map[string]string {
	names := map[string]string{}
	records, _ := csv.NewReader(bytes.NewReader(raw)).ReadAll() // the user of a missing record reports it
	for _, r := range records {
		names[r[0]] = r[1]
	}
	return names
}

// readCPUs reads the processors. A test holds that every line can be read.
func readCPUs() *cpus {
	c := &cpus{exact: map[string]float64{}, found: map[string]float64{}}
	records, _ := csv.NewReader(bytes.NewReader(cpuTable)).ReadAll()
	for _, r := range records[min(1, len(records)):] {
		watts, err := strconv.ParseFloat(r[1], 64)
		if err != nil {
			continue
		}
		c.exact[strings.ToLower(r[0])] = watts
		c.names = append(c.names, [2]string{r[0], r[1]})
	}
	return c
}

func (t *Tables) addGPU(r []string) error {
	watts, err := strconv.ParseFloat(r[1], 64)
	if err != nil {
		return err
	}
	year, err := strconv.Atoi(r[2])
	t.boards = append(t.boards, Board{Model: r[0], Watts: watts, Year: year, Source: r[3], words: gpuWords(r[0])})
	return err
}

func (t *Tables) addGrid(sources map[string]string) func([]string) error {
	return func(r []string) error {
		grams, err := strconv.ParseFloat(r[4], 64)
		if err != nil {
			return err
		}
		listed, err := strconv.ParseFloat(r[5], 64)
		if err != nil {
			return err
		}
		year, err := strconv.Atoi(r[6])
		if err != nil {
			return err
		}
		source := sources[r[7]]
		if source == "" {
			return fmt.Errorf("no source %q", r[7])
		}
		g := Grid{Country: r[0], CountryName: r[3], Region: r[1], GramsPerKWh: grams, Year: year, Source: source}
		if isProvider(r[0]) {
			t.cloud[r[0]] = true
			g.Cloud, g.Country, g.CountryName = r[0], r[2], ""
			t.grid[r[0]+"/"+r[1]] = gridLine{g, listed}
			return nil
		}
		line := gridLine{g, listed}
		if r[1] == "" {
			t.grid[r[0]] = line
			return nil
		}
		line.grid.CountryName = ""
		for _, name := range append([]string{r[1]}, strings.FieldsFunc(r[2], func(c rune) bool { return c == '|' })...) {
			t.grid[r[0]+"/"+name] = line
		}
		return nil
	}
}

func (t *Tables) addCenter(r []string) error {
	t.centers[r[0]] = DataCenter{ID: r[0], Location: Location{Country: r[1], Region: r[2]}, Place: r[3]}
	return nil
}

func (t *Tables) addPUE(r []string) error {
	var n [3]float64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseFloat(r[1+i], 64); err != nil {
			return err
		}
	}
	t.pue[r[0]] = PUE{Factor: n[0], Low: n[1], High: n[2], Source: r[5] + " (" + r[4] + ")"}
	return nil
}

// PUE is that of a place other than this machine: kaggle, runpod. The zero
// value where there is none.
func (t *Tables) PUE(place string) PUE { return t.pue[place] }

// RunPod is where a data center of RunPod's is.
func (t *Tables) RunPod(id string) (DataCenter, bool) {
	c, ok := t.centers[strings.ToUpper(strings.TrimSpace(id))]
	return c, ok
}

// RunPodCenters are all that are known, by their ids.
func (t *Tables) RunPodCenters() []DataCenter {
	var all []DataCenter
	for _, id := range slices.Sorted(maps.Keys(t.centers)) {
		all = append(all, t.centers[id])
	}
	return all
}

var (
	frequency = lazyregexp.New(` @\s*\d+\.\d+GHz`)
	cores     = lazyregexp.New(`(?i)(\d+)-Core`)
)

// TDP is the thermal design power of a processor, in watts. It is found as
// CodeCarbon 3.3.2 does: the name as it stands, the name without what vendors
// add, or the one line whose words are all in the name or the reverse.
func (t *Tables) TDP(model string) (float64, bool) {
	model = strings.TrimSpace(model)
	const most = 300
	if model == "" || len(model) > most {
		return 0, false
	}
	c := t.cpus()
	c.mu.Lock()
	defer c.mu.Unlock()
	watts, ok := c.found[model]
	if !ok {
		watts = c.find(model)
		const enough = 100 // names come from services, too
		if len(c.found) < enough {
			c.found[model] = watts
		}
	}
	return max(0, watts), watts >= 0
}

func (c *cpus) find(model string) float64 {
	if w, ok := c.exact[strings.ToLower(model)]; ok {
		return w
	}
	plain := strings.ReplaceAll(model, "(R)", "")
	if i := strings.Index(plain, " CPU @ "); i > 0 {
		plain = plain[:i]
	}
	plain = frequency().ReplaceAllString(strings.ReplaceAll(plain, " CPU", ""), "")
	if w, ok := c.exact[strings.ToLower(plain)]; ok {
		return w
	}
	words := wordsOf(plain)
	found, watts := 0, ""
	for _, one := range c.names {
		if w := wordsOf(one[0]); within(w, words) || within(words, w) {
			found++
			watts = one[1]
		}
	}
	if w, err := strconv.ParseFloat(watts, 64); err == nil && found == 1 {
		return w
	}
	return -1
}

// threadsOf is how many threads a processor runs, where its name says how many
// cores it has: those whose names do have two for each.
func threadsOf(model string) int {
	m := cores().FindStringSubmatch(model)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || n > 1024 {
		return 0
	}
	return 2 * n
}

func wordsOf(s string) map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		words[w] = true
	}
	return words
}

func within(small, large map[string]bool) bool {
	if len(small) == 0 || len(small) > len(large) {
		return false
	}
	for w := range small {
		if !large[w] {
			return false
		}
	}
	return true
}

// gpuWords are the words of an accelerator's name that tell it from others.
func gpuWords(name string) []string {
	var words []string
	for w := range wordsOf(name) {
		switch w {
		case "nvidia", "geforce", "generation", "edition", "server", "workstation", "gpu", "tesla", "quadro", "amd", "instinct", "blackwell", "google", "oam", "accelerator":
		default:
			words = append(words, w)
		}
	}
	return words
}

// GPU is the board of an accelerator's name, as nvidia-smi or a service spells
// it: the one whose words are all in the name, and of several the one with most
// words.
func (t *Tables) GPU(model string) (Board, bool) {
	// Kaggle writes NvidiaTeslaT4.
	have := wordsOf(strings.NewReplacer("nvidia", " ", "tesla", " ").Replace(strings.ToLower(model)))
	if have["sxm4"] || have["sxm5"] || have["sxm2"] {
		have["sxm"] = true
	}
	var best Board
	most, tie := 0, false
	for _, b := range t.boards {
		all := len(b.words) > 0
		for _, w := range b.words {
			all = all && have[w]
		}
		switch {
		case !all || len(b.words) < most:
		case len(b.words) > most:
			best, most, tie = b, len(b.words), false
		default:
			tie = true
		}
	}
	if most > 0 && !tie {
		return best, true
	}
	return t.short(have)
}

// short finds a name that says less than the table: "P100", "A100". Of several
// boards the one with most power.
func (t *Tables) short(have map[string]bool) (Board, bool) {
	want := map[string]bool{}
	for _, w := range gpuWords(strings.Join(slices.Sorted(maps.Keys(have)), " ")) {
		want[w] = true
	}
	for w := range want {
		// What makers write of memory is not what tells boards apart.
		if strings.HasSuffix(w, "gb") || w == "sxm" || w == "x2" {
			delete(want, w)
		}
	}
	var best Board
	if !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(w string) bool { return strings.ContainsAny(w, "0123456789") }) {
		return best, false // "RTX" is no model
	}
	for _, b := range t.boards {
		mine := map[string]bool{}
		for _, w := range b.words {
			mine[w] = true
		}
		if within(want, mine) && b.Watts > best.Watts {
			best = b
		}
	}
	return best, best.Watts > 0
}

// Boards are all accelerators that are known.
func (t *Tables) Boards() []Board { return slices.Clone(t.boards) }
