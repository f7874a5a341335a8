package settings

import (
	"regexp"
	"time"
)

// Whether the dashboard of CodeCarbon is reported to.
const (
	DashboardAuto = "auto"
	DashboardOn   = "on"
	DashboardOff  = "off"
)

// Carbon is about energy and emissions.
type Carbon struct {
	Enabled        bool
	Method         string // of package carbon
	Location       string // empty: not declared
	DetectLocation bool
	Kaggle, RunPod string // where runs there are; empty: not declared
	Intensity      float64
	PUE            float64
	Zone, MapsURL  string
	CSV            string // empty: none
	Dashboard      string
	Keep           time.Duration // 0: for ever
}

var placeForm = regexp.MustCompile(`^([A-Za-z]{3}(/[\p{L}0-9 .'-]{1,60})?|gcp/[a-z0-9-]{1,40})$`)

func isPlace(s string) bool { return placeForm.MatchString(s) }

func isWebAddress(s string) bool { return regexp.MustCompile(`^https?://[^\s"<>]+$`).MatchString(s) }

// declareCarbon is what is kept and told of energy and emissions.
func declareCarbon(c *Carbon) []*setting {
	const day = 24 * time.Hour
	const form = "a country's three letters, with a region where there is one: `FRA`, `USA/california`, `CAN/quebec`, `SWE/SE3`, `gcp/europe-west9`"
	return []*setting{
		{key: "carbon.enabled", value: boolean(&c.Enabled), initial: "true",
			help: "Keep account of the energy and emissions of every run, in the folder `ledger` of the state folder."},
		{key: "carbon.method", value: choice(&c.Method, "sallyport", "codecarbon"), initial: "sallyport",
			help: "How energy is estimated: what a run used itself, by its processor time and bytes (`sallyport`), or CodeCarbon's model of the same measurements (`codecarbon`)."},
		{key: "carbon.location", value: matching(&c.Location, isPlace, form), defaults: "not known",
			help: "Where this machine is. Where that is not known, energy is told, emissions are `null`, and nothing is reported to a dashboard."},
		{key: "carbon.detectLocation", value: boolean(&c.DetectLocation), initial: "false",
			help: "Find out where this machine is, where `carbon.location` does not say: once a day `get.geojs.io`, or else `ipinfo.io`, is asked, and sees this machine's address."},
		{key: "carbon.intensity", value: number(&c.Intensity, 0, 5000).or("table", -1), initial: "table",
			help: "Grams of CO2e that a kilowatt-hour makes at this machine, where you know better than the table."},
		{key: "carbon.pue", value: number(&c.PUE, 1, 5), initial: "1",
			help: "What the building takes for each kilowatt-hour that this machine takes."},
		{key: "carbon.electricityMapsUrl", value: matching(&c.MapsURL, isWebAddress, "a URL"), initial: "https://api.electricitymaps.com",
			help: "Where Electricity Maps answers. It is asked for live intensities where CodeCarbon's configuration has a token of it (`CODECARBON_ELECTRICITYMAPS_API_TOKEN`, or `electricitymaps_api_token` in `~/.codecarbon.config`)."},
		{key: "carbon.electricityMapsZone", value: matching(&c.Zone, regexp.MustCompile(`^[A-Za-z0-9-]{2,40}$`).MatchString, "a zone such as `US-CAL-CISO`"), defaults: "the country",
			help: "The zone of Electricity Maps that this machine is in."},
		{key: "carbon.csv", value: path(&c.CSV, func(s string, at place) (string, error) { return at.absolute(s) }, "path of a file"), defaults: "none",
			help: "An `emissions.csv` in CodeCarbon's columns, to which a line is added for each run."},
		{key: "carbon.dashboard", value: choice(&c.Dashboard, DashboardAuto, DashboardOn, DashboardOff), initial: DashboardAuto,
			help: "Report to the dashboard of CodeCarbon: where your own CodeCarbon configuration (`CODECARBON_API_KEY` and `CODECARBON_EXPERIMENT_ID`, or `~/.codecarbon.config`) has a project token and an experiment (`auto`), with `.codecarbon.config` of the working directory, too, and saying so where they are missing (`on`), or never (`off`). Nothing is reported of runs whose place is not known."},
		{key: "carbon.keep", value: duration(&c.Keep, day, 3650*day).or("forever", 0), initial: "9600h",
			help: "How long the ledger is kept. Of days older than a month, a line is left for each kind of run."},
		{key: "carbon.kaggle.location", value: matching(&c.Kaggle, isPlace, form), defaults: "not known",
			help: "Where runs on Kaggle are taken to be, which does not say it."},
		{key: "carbon.runpod.location", value: matching(&c.RunPod, isPlace, form), defaults: "the data center's",
			help: "Where runs on RunPod are taken to be, where the data center is not known."},
	}
}
