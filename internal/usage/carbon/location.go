package carbon

import (
	"fmt"
	"strings"
)

// Location is where something runs: a country (ISO 3166-1 alpha-3) and perhaps
// a region of it, or a cloud provider's region.
type Location struct {
	Country string `json:"country,omitempty"`
	Region  string `json:"region,omitempty"`
	Cloud   string `json:"cloud,omitempty"`
}

// String is the form that ParseLocation reads.
func (l Location) String() string {
	first := l.Country
	if l.Cloud != "" {
		first = l.Cloud
	}
	if l.Region == "" {
		return first
	}
	return first + "/" + l.Region
}

func isProvider(name string) bool { return name != "" && name == strings.ToLower(name) }

// ParseLocation reads FRA, USA/california, USA/CA, SWE/SE3 or
// gcp/europe-west9. It does not know which places there are.
func ParseLocation(text string) (Location, error) {
	first, region, _ := strings.Cut(strings.TrimSpace(text), "/")
	first, region = strings.TrimSpace(first), strings.TrimSpace(region)
	switch {
	case strings.EqualFold(first, "gcp"):
		if region != "" {
			return Location{Cloud: "gcp", Region: strings.ToLower(region)}, nil
		}
	case len(first) == 3 && strings.Trim(strings.ToUpper(first), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "":
		return Location{Country: strings.ToUpper(first), Region: region}, nil
	}
	return Location{}, fmt.Errorf("%q is not a location: write a country's three letters (FRA), with a region where there is one (USA/california, CAN/quebec, SWE/SE3), or gcp/REGION", text)
}

// Grid is the electricity of a place. Its error says that the place is not in
// the table: there is no default.
func (t *Tables) Grid(l Location) (Grid, error) { return t.lookup(l, false) }

// GridAsCodeCarbon is Grid with the number that codecarbon 3.3.2 uses, also
// where the own table knows better.
func (t *Tables) GridAsCodeCarbon(l Location) (Grid, error) { return t.lookup(l, true) }

func (t *Tables) lookup(l Location, listed bool) (Grid, error) {
	key := l.Country
	if l.Cloud != "" {
		key = l.Cloud
	}
	whole, known := t.grid[l.Country]
	if l.Cloud == "" && !known {
		return Grid{}, fmt.Errorf("there is no intensity for the country %q (ISO 3166-1 alpha-3)", l.Country)
	}
	line := whole
	if l.Region != "" {
		line, known = t.grid[key+"/"+regionKey(l.Region)]
		if !known {
			return Grid{}, fmt.Errorf("there is no region %q of %s in the table; without a region, %s stands for all of it", l.Region, key, key)
		}
		line.grid.CountryName = whole.grid.CountryName
		if line.grid.Cloud != "" {
			line.grid.CountryName = t.grid[line.grid.Country].grid.CountryName
		}
	}
	g := line.grid
	if listed {
		g.GramsPerKWh = line.listed
	}
	// A year's mean of a whole grid, for a moment in one place of it.
	g.Low, g.High = 0.5*g.GramsPerKWh, 1.6*g.GramsPerKWh
	return g, nil
}

// regionKey is a region's name as the table has it.
func regionKey(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, end := range []string{" province", " municipality", " autonomous region"} {
		name = strings.TrimSuffix(name, end)
	}
	return name
}

// Declared is a grid whose intensity the user states.
func Declared(gramsPerKWh float64, l Location) Grid {
	return Grid{Country: l.Country, Region: l.Region, Cloud: l.Cloud, GramsPerKWh: gramsPerKWh, Low: gramsPerKWh, High: gramsPerKWh,
		Source: "declared (carbon.intensity)"}
}

// Live is a grid as a service measured it a moment ago.
func Live(gramsPerKWh float64, l Location, source string) Grid {
	return Grid{Country: l.Country, Region: l.Region, Cloud: l.Cloud, GramsPerKWh: gramsPerKWh,
		Low: 0.85 * gramsPerKWh, High: 1.15 * gramsPerKWh, Source: source}
}
