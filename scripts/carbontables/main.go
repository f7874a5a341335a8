// Command carbontables makes the tables of internal/usage/carbon from the files in
// data/carbon: compact, in one form, with a source and a year for each number.
//
//	go run ./scripts/carbontables          writes internal/usage/carbon/tables
//	go run ./scripts/carbontables -check   fails where they are not what it would write
package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	from := flag.String("from", "data/carbon", "the folder with the files")
	to := flag.String("to", "internal/usage/carbon/tables", "the folder with the tables")
	check := flag.Bool("check", false, "compare instead of writing")
	flag.Parse()
	if err := run(*from, *to, *check); err != nil {
		fmt.Fprintln(os.Stderr, "carbontables:", err)
		os.Exit(1)
	}
}

func run(from, to string, check bool) error {
	tables, err := build(os.DirFS(from))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		path := filepath.Join(to, name)
		if !check {
			if err := os.WriteFile(path, tables[name], 0o644); err != nil {
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, tables[name]) {
			return fmt.Errorf("%s is stale: run `go run ./scripts/carbontables`", path)
		}
	}
	return nil
}

// files are the folder that is read.
type files = fs.FS

// The sources of the grid's numbers, by the keys that stand in the table.
var sources = [][]string{
	{"key", "source", "licence"},
	{"owid", "Our World in Data, electricity mix (Ember; Energy Institute), as in codecarbon 3.3.2", "CC BY 4.0"},
	{"owid-mix", "generation by Our World in Data, times factors of IEA, IPCC and the World Nuclear Association, as in codecarbon 3.3.2", "CC BY 4.0"},
	{"egrid", "US EPA eGRID2023, state total output emission rate (STC2ERTA): https://www.epa.gov/egrid", "public domain"},
	{"cer", "Canada Energy Regulator, provincial generation mix, times factors of codecarbon 3.3.2", "Open Government Licence - Canada"},
	{"entsoe", "ENTSO-E Transparency, generation per type (A75), times factors of codecarbon 3.3.2", "CC BY 4.0"},
	{"nordic-prior", "codecarbon 3.3.2, nordic_emissions.json", "MIT"},
	{"mee", "MEE and NBS of China, Announcement 2025 No. 47, table 3; CO2 alone, no life cycle", "official publication"},
	{"google", "Google Cloud, carbon data of regions: https://cloud.google.com/sustainability/region-carbon", "CC BY 4.0"},
}

// A row is one intensity.
type row struct {
	country, region string
	aliases         []string // further names of the region
	name            string
	grams           float64 // per kWh
	listed          float64 // what codecarbon uses, where that is another number; else grams
	year            int
	source          string
}

func build(in files) (map[string][]byte, error) {
	var rows []row
	for _, read := range []func(files) ([]row, error){countries, states, provinces, zones, china, cloud} {
		more, err := read(in)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return strings.Compare(a.country+"\x00"+a.region, b.country+"\x00"+b.region)
	})
	grid := [][]string{{"country", "region", "aliases", "name", "grams_per_kwh", "codecarbon_grams_per_kwh", "year", "source"}}
	for i, r := range rows {
		if i > 0 && rows[i-1].country == r.country && rows[i-1].region == r.region {
			return nil, fmt.Errorf("two lines for %s %s", r.country, r.region)
		}
		grid = append(grid, []string{r.country, r.region, strings.Join(r.aliases, "|"), r.name,
			number(r.grams), number(r.listed), strconv.Itoa(r.year), r.source})
	}
	out := map[string][]byte{}
	for name, records := range map[string][][]string{"grid.csv": grid, "sources.csv": sources} {
		var err error
		if out[name], err = encode(records); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"gpu_power.csv", "runpod.csv", "pue.csv"} {
		raw, err := fs.ReadFile(in, name)
		if err != nil {
			return nil, err
		}
		if _, err := csv.NewReader(bytes.NewReader(raw)).ReadAll(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = raw
	}
	var err error
	out["cpu_power.csv"], err = processors(in)
	return out, err
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 12, 64) }

func encode(records [][]string) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	err := w.WriteAll(records)
	return b.Bytes(), err
}

func decode(in files, name string, into any) error {
	raw, err := fs.ReadFile(in, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// countries are those of Our World in Data. Where it says nothing, the mix
// does: a country with water power alone does not make electricity for free.
func countries(in files) ([]row, error) {
	var mix map[string]struct {
		Name      string  `json:"country_name"`
		Intensity float64 `json:"carbon_intensity"`
		Year      int     `json:"year"`
		Total     float64 `json:"total_TWh"`
		Biofuel   float64 `json:"biofuel_TWh"`
		Coal      float64 `json:"coal_TWh"`
		Gas       float64 `json:"gas_TWh"`
		Hydro     float64 `json:"hydroelectricity_TWh"`
		Nuclear   float64 `json:"nuclear_TWh"`
		Oil       float64 `json:"oil_TWh"`
		Solar     float64 `json:"solar_TWh"`
		Wind      float64 `json:"wind_TWh"`
	}
	if err := decode(in, "global_energy_mix.json", &mix); err != nil {
		return nil, err
	}
	var factor map[string]any
	if err := decode(in, "carbon_intensity_per_source.json", &factor); err != nil {
		return nil, err
	}
	of := func(name string) float64 { f, _ := factor[name].(float64); return f }
	var rows []row
	for code, c := range mix {
		r := row{country: code, name: c.Name, grams: c.Intensity, listed: c.Intensity, year: c.Year, source: "owid"}
		if c.Intensity == 0 {
			sum := c.Biofuel + c.Coal + c.Gas + c.Hydro + c.Nuclear + c.Oil + c.Solar + c.Wind
			if c.Total <= 0 || sum < 0.95*c.Total || sum > 1.05*c.Total {
				return nil, fmt.Errorf("%s has neither an intensity nor a whole mix", code)
			}
			r.grams = (c.Biofuel*of("biofuel") + c.Coal*of("coal") + c.Gas*of("natural_gas") + c.Hydro*of("hydroelectricity") +
				c.Nuclear*of("nuclear") + c.Oil*of("petroleum") + c.Solar*of("solar") + c.Wind*of("wind")) / sum
			r.source = "owid-mix"
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// states are those of the USA.
func states(in files) ([]row, error) {
	const gramsPerPound, megawatt = 453.59237, 1000
	var all map[string]struct {
		Emissions any    `json:"emissions"`
		Code      string `json:"regionCode"`
		Year      int    `json:"year"`
	}
	if err := decode(in, "usa_emissions.json", &all); err != nil {
		return nil, err
	}
	year := all["_source"].Year
	var rows []row
	for name, s := range all {
		pounds, ok := s.Emissions.(float64)
		if strings.HasPrefix(name, "_") || !ok {
			continue
		}
		grams := pounds * gramsPerPound / megawatt
		rows = append(rows, row{country: "USA", region: name, aliases: []string{strings.ToLower(s.Code)}, name: title(name),
			grams: grams, listed: grams, year: year, source: "egrid"})
	}
	return rows, nil
}

// provinces are those of Canada: their mix times three factors.
func provinces(in files) ([]row, error) {
	const coal, petroleum, gas = 995.725971, 816.6885263, 743.8415916
	codes := map[string]string{"alberta": "ab", "british columbia": "bc", "manitoba": "mb", "new brunswick": "nb",
		"newfoundland and labrador": "nl", "northwest territories": "nt", "nova scotia": "ns", "nunavut": "nu", "ontario": "on",
		"prince edward island": "pe", "quebec": "qc", "saskatchewan": "sk", "yukon": "yt"}
	var all map[string]map[string]float64
	if err := decode(in, "canada_energy_mix.json", &all); err != nil {
		return nil, err
	}
	var rows []row
	for name, p := range all {
		grams := (p["coal"]*coal + p["petroleum"]*petroleum + p["naturalGas"]*gas) / p["total"]
		rows = append(rows, row{country: "CAN", region: name, aliases: []string{codes[name]}, name: title(name),
			grams: grams, listed: grams, year: 2023, source: "cer"})
	}
	return rows, nil
}

// zones are bidding zones of the Nordic market.
func zones(in files) ([]row, error) {
	var all struct {
		Data map[string]struct {
			Grams float64 `json:"emission_factor"`
			Name  string  `json:"description"`
			Year  int     `json:"year"`
		} `json:"data"`
	}
	if err := decode(in, "nordic_emissions.json", &all); err != nil {
		return nil, err
	}
	countryOf := map[string]string{"SE": "SWE", "NO": "NOR", "FI": "FIN"}
	var rows []row
	for zone, z := range all.Data {
		source := "entsoe"
		if zone == "FI" {
			source = "nordic-prior"
		}
		rows = append(rows, row{country: countryOf[zone[:2]], region: strings.ToLower(zone), name: z.Name,
			grams: z.Grams, listed: z.Grams, year: z.Year, source: source})
	}
	return rows, nil
}

// china are its provinces.
func china(in files) ([]row, error) {
	var all struct {
		Data map[string]struct {
			Grams float64  `json:"emission_factor"`
			Name  string   `json:"description"`
			Year  int      `json:"year"`
			Names []string `json:"names"`
		} `json:"data"`
	}
	if err := decode(in, "china_provincial_emissions.json", &all); err != nil {
		return nil, err
	}
	var rows []row
	for code, p := range all.Data {
		aliases := append([]string{strings.ToLower(strings.TrimPrefix(code, "CN-"))}, p.Names[1:]...)
		rows = append(rows, row{country: "CHN", region: p.Names[0], aliases: aliases, name: p.Name,
			grams: p.Grams, listed: p.Grams, year: p.Year, source: "mee"})
	}
	return rows, nil
}

// cloud are regions of cloud providers, under the provider's name.
func cloud(in files) ([]row, error) {
	records, err := table(in, "impact.csv")
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, r := range records {
		grams, err := strconv.ParseFloat(r["impact"], 64)
		if err != nil {
			return nil, fmt.Errorf("impact.csv: %s: %w", r["region"], err)
		}
		rows = append(rows, row{country: r["provider"], region: r["region"], aliases: []string{r["countryIsoCode"]},
			name: r["providerName"] + ", " + r["city"], grams: grams, listed: grams, year: 2023, source: "google"})
	}
	return rows, nil
}

// processors are all that have a name and a power, in their order.
func processors(in files) ([]byte, error) {
	records, err := table(in, "cpu_power.csv")
	if err != nil {
		return nil, err
	}
	out := [][]string{{"name", "tdp_watts"}}
	unread := 0
	for _, r := range records {
		name, watts := strings.TrimSpace(r["Name"]), strings.TrimSpace(r["TDP"])
		f, err := strconv.ParseFloat(watts, 64)
		if err != nil || name == "" {
			unread++ // "27.29.5" is no power
			continue
		}
		out = append(out, []string{name, number(f)})
	}
	if unread > 10 {
		return nil, fmt.Errorf("cpu_power.csv: %d lines have no power", unread)
	}
	return encode(out)
}

// table reads a CSV file with a header.
func table(in files, name string) ([]map[string]string, error) {
	raw, err := fs.ReadFile(in, name)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))))
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var all []map[string]string
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m := map[string]string{}
		for i, h := range head {
			m[h] = record[i]
		}
		all = append(all, m)
	}
}

func title(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		if w != "and" && w != "of" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, " ")
}
