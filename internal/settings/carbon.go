package settings

import (
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// The values of carbon.dashboard: whether runs are reported to CodeCarbon's
// dashboard.
const (
	DashboardAuto = "auto"
	DashboardOn   = "on"
	DashboardOff  = "off"
)

// Carbon configures the account of energy and emissions.
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
	Keep           time.Duration // 0: forever
}

var placeForm = lazyregexp.New(`^([A-Za-z]{3}(/[\p{L}0-9 .'-]{1,60})?|gcp/[a-z0-9-]{1,40})$`)

func isPlace(s string) bool { return placeForm().MatchString(s) }

var (
	webAddress = lazyregexp.New(`^https?://[^\s"<>]+$`)
	zoneForm   = lazyregexp.New(`^[A-Za-z0-9-]{2,40}$`)
)

func isWebAddress(s string) bool { return webAddress().MatchString(s) }

func isZone(s string) bool { return zoneForm().MatchString(s) }

// declareCarbon declares what is recorded and reported about energy and
// emissions.
func declareCarbon(c *Carbon) []*setting {
	const day = 24 * time.Hour
	const form = "a country's three letters, with a region if it has any: `FRA`, `USA/california`, `CAN/quebec`, `SWE/SE3`, `gcp/europe-west9`"
	return []*setting{
		{key: "carbon.enabled", value: boolean(&c.Enabled), initial: "true",
			help: "Keep account of the energy and emissions of every run, in the folder `ledger` of the state folder."},
		{key: "carbon.method", value: choice(&c.Method, "sallyport", "codecarbon"), initial: "sallyport",
			help: "How energy is estimated: from the processor time and bytes of the run itself (`sallyport`), or by CodeCarbon's model from the same measurements (`codecarbon`)."},
		{key: "carbon.location", value: matching(&c.Location, isPlace, form), defaults: "not known",
			help: "Where this machine is. If it is not known, energy is recorded, emissions are `null`, and nothing is reported to a dashboard."},
		{key: "carbon.detectLocation", value: boolean(&c.DetectLocation), initial: "false",
			help: "Find out where this machine is if `carbon.location` is not set: ask `get.geojs.io`, or else `ipinfo.io`, once a day. They see this machine's address."},
		{key: "carbon.intensity", value: number(&c.Intensity, 0, 5000).or("table", -1), initial: "table",
			help: "Grams of CO2e per kilowatt-hour at this machine, if you know better than the table."},
		{key: "carbon.pue", value: number(&c.PUE, 1, 5), initial: "1",
			help: "Power usage effectiveness: the kilowatt-hours that the building uses for each one that this machine uses."},
		{key: "carbon.electricityMapsUrl", value: matching(&c.MapsURL, isWebAddress, "a URL"), initial: "https://api.electricitymaps.com",
			help: "Address of the Electricity Maps API. It is asked for live intensities if CodeCarbon's configuration has a token for it (`CODECARBON_ELECTRICITYMAPS_API_TOKEN`, or `electricitymaps_api_token` in `~/.codecarbon.config`)."},
		{key: "carbon.electricityMapsZone", value: matching(&c.Zone, isZone, "a zone such as `US-CAL-CISO`"), defaults: "the country",
			help: "The zone of Electricity Maps that this machine is in."},
		{key: "carbon.csv", value: path(&c.CSV, func(s string, at place) (string, error) { return at.absolute(s) }, "path of a file"), defaults: "none",
			help: "An `emissions.csv` with CodeCarbon's columns. Each run adds a line to it."},
		{key: "carbon.dashboard", value: choice(&c.Dashboard, DashboardAuto, DashboardOn, DashboardOff), initial: DashboardAuto,
			help: "Report to CodeCarbon's dashboard. `auto`: if your own CodeCarbon configuration (`CODECARBON_API_KEY` and `CODECARBON_EXPERIMENT_ID`, or `~/.codecarbon.config`) has a project token and an experiment. `on`: also read `.codecarbon.config` in the working directory, and warn if they are missing. `off`: never. Runs at an unknown location are not reported."},
		{key: "carbon.keep", value: duration(&c.Keep, day, 3650*day).or("forever", 0), initial: "9600h",
			help: "How long the ledger is kept. Days older than a month are reduced to one line for each kind of run."},
		{key: "carbon.kaggle.location", value: matching(&c.Kaggle, isPlace, form), defaults: "not known",
			help: "Assumed location of runs on Kaggle, which does not report it."},
		{key: "carbon.runpod.location", value: matching(&c.RunPod, isPlace, form), defaults: "the data center's",
			help: "Assumed location of runs on RunPod whose data center is not known."},
	}
}
