// Package intensity asks services about the electricity of a place: how many
// grams of CO2e a kilowatt-hour makes now (Electricity Maps, with the user's
// token), and where this machine is (with the user's consent). Nothing is asked
// unless it was configured.
package intensity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/language"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

const (
	// requestTimeout bounds a request.
	requestTimeout = 10 * time.Second
	// fresh is how long an intensity is used.
	fresh = time.Minute
	// usable is how long an old one is better than a year's mean.
	usable = 2 * time.Hour
	// After a failure nothing is asked for leastWait, doubled up to mostWait.
	leastWait, mostWait = 30 * time.Second, time.Hour
	maxAnswer           = 64 << 10
)

// ElectricityMaps is where that service answers.
const ElectricityMaps = "https://api.electricitymaps.com"

// Options are a Service's.
type Options struct {
	Base  string // empty: ElectricityMaps
	Token func() string
	Zone  string // of the service; empty: the location's country
	Now   func() time.Time
}

// A Service is Electricity Maps. It is safe for concurrent use.
type Service struct {
	opts Options
	http *http.Client

	mu    sync.Mutex
	grams map[string]reading // by what was asked
}

type reading struct {
	grams float64
	at    time.Time
	wait  time.Duration // after failures
	until time.Time
	err   error
}

// New returns the service.
func New(opts Options) *Service {
	if opts.Base == "" {
		opts.Base = ElectricityMaps
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Service{opts: opts, http: client(), grams: map[string]reading{}}
}

func client() *http.Client {
	return &http.Client{Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// What cannot be asked about: the service knows zones and whole countries,
// nothing of clouds, and a country's mean says nothing of a region of it.
var (
	errElsewhere = errors.New("only countries and zones can be asked about")
	errRegion    = errors.New("regions have other names at Electricity Maps: set carbon.electricityMapsZone (such as CA-QC); until then the table's number of the region is used")
)

// query is what is asked about a place.
func (s *Service) query(l carbon.Location, here bool) (string, error) {
	if here && s.opts.Zone != "" {
		return "zone=" + url.QueryEscape(s.opts.Zone), nil
	}
	switch {
	case l.Cloud != "":
		return "", errElsewhere
	case l.Region != "":
		return "", errRegion
	}
	region, err := language.ParseRegion(l.Country)
	if err != nil || len(region.String()) != 2 {
		return "", fmt.Errorf("the country %q has no code of two letters", l.Country)
	}
	return "countryCode=" + region.String(), nil
}

// Now is what was read of a place last, without asking: for paths that do not
// wait.
func (s *Service) Now(l carbon.Location, here bool) (carbon.Grid, bool) {
	q, err := s.query(l, here)
	if err != nil {
		return carbon.Grid{}, false
	}
	s.mu.Lock()
	r, ok := s.grams[q]
	s.mu.Unlock()
	if !ok || r.at.IsZero() || s.opts.Now().Sub(r.at) > usable {
		return carbon.Grid{}, false
	}
	return carbon.Live(r.grams, l, "Electricity Maps, "+r.at.UTC().Format("2006-01-02 15:04 UTC")), true
}

// Refresh asks about a place, unless it was asked a moment ago. here says that
// it is this machine's, of which the zone may be declared.
func (s *Service) Refresh(ctx context.Context, l carbon.Location, here bool) error {
	q, err := s.query(l, here)
	if err != nil {
		return err
	}
	now := s.opts.Now()
	s.mu.Lock()
	r := s.grams[q]
	s.mu.Unlock()
	if now.Sub(r.at) < fresh || now.Before(r.until) {
		return r.err
	}
	grams, err := s.ask(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		r.wait = min(mostWait, max(leastWait, 2*r.wait))
		r.until, r.err = now.Add(r.wait), err
	} else {
		r = reading{grams: grams, at: now}
	}
	s.grams[q] = r
	return err
}

func (s *Service) ask(ctx context.Context, query string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(s.opts.Base, "/")+"/v3/carbon-intensity/latest?"+query, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("auth-token", s.opts.Token())
	var answer struct {
		CarbonIntensity *float64 `json:"carbonIntensity"`
	}
	if err := get(s.http, req, &answer); err != nil {
		return 0, err
	}
	if answer.CarbonIntensity == nil || *answer.CarbonIntensity < 0 || *answer.CarbonIntensity > 5000 {
		return 0, errors.New("the answer of Electricity Maps has no intensity")
	}
	return *answer.CarbonIntensity, nil
}

func get(c *http.Client, req *http.Request, into any) error {
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", req.URL.Host, resp.StatusCode)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	return nil
}

// A Locator finds out where this machine is, by the address that a service
// sees. It is only used with the user's consent. What it found is kept for a
// day: as little as possible is asked.
type Locator struct {
	Dir  store.Dir
	URLs []string // empty: GeoServices
	Now  func() time.Time
}

// GeoServices are asked in this order.
func GeoServices() []string {
	return []string{"https://get.geojs.io/v1/ip/geo.json", "https://ipinfo.io/json"}
}

const (
	placeFile = "place.json"
	placeFor  = 24 * time.Hour
)

// place is what is kept.
type place struct {
	Location carbon.Location `json:"location"`
	Time     time.Time       `json:"time"`
}

// Known is where the machine was found to be lately, without asking.
func (l *Locator) Known() (carbon.Location, bool) {
	raw, err := l.Dir.Read(placeFile, maxAnswer)
	var p place
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Location.Country == "" {
		return carbon.Location{}, false
	}
	// One of the future was kept before the clock was set back.
	if age := l.now().Sub(p.Time); age > placeFor || age < -placeFor {
		return carbon.Location{}, false
	}
	return p.Location, true
}

func (l *Locator) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// Locate asks, unless it is known. Where no service answers, the place is not
// known: there is no default. has says of which places there are intensities,
// so that a region that the table lacks leaves the country.
func (l *Locator) Locate(ctx context.Context, has func(carbon.Location) bool) (carbon.Location, error) {
	if found, ok := l.Known(); ok {
		return found, nil
	}
	urls := l.URLs
	if urls == nil {
		urls = GeoServices()
	}
	var errs []error
	for _, u := range urls {
		found, err := l.ask(ctx, u)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !has(found) {
			found.Region = ""
		}
		raw, err := json.Marshal(place{found, l.now()})
		if err == nil {
			err = l.Dir.Write(placeFile, raw)
		}
		if errors.Is(err, store.ErrNoPlace) {
			err = nil
		}
		return found, err
	}
	return carbon.Location{}, fmt.Errorf("it could not be found out where this machine is: %w", errors.Join(errs...))
}

func (l *Locator) ask(ctx context.Context, u string) (carbon.Location, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return carbon.Location{}, err
	}
	var answer struct {
		Code3   string `json:"country_code3"`
		Country string `json:"country"` // ipinfo: two letters
		Region  string `json:"region"`
	}
	if err := get(client(), req, &answer); err != nil {
		return carbon.Location{}, err
	}
	code := answer.Code3
	if code == "" && len(answer.Country) == 2 {
		if r, err := language.ParseRegion(answer.Country); err == nil {
			code = r.ISO3()
		}
	}
	found, err := carbon.ParseLocation(code)
	if err != nil || found.Cloud != "" {
		return carbon.Location{}, fmt.Errorf("%s: the answer has no country", req.URL.Host)
	}
	if len(answer.Region) <= 100 {
		found.Region = answer.Region
	}
	return found, nil
}
