package intensity

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

func TestElectricityMaps(t *testing.T) {
	var asked []string
	body, status := `{"zone":"FR","carbonIntensity":42.5}`, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.RawQuery+" "+r.Header.Get("auth-token"))
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := New(Options{Base: server.URL + "/", Token: func() string { return "tok" }, Now: func() time.Time { return now }})
	france := carbon.Location{Country: "FRA"}
	if _, ok := s.Now(france, true); ok {
		t.Error("something is known before anybody asked")
	}
	for range 3 { // asked once a minute
		if err := s.Refresh(t.Context(), france, true); err != nil {
			t.Fatal(err)
		}
	}
	g, ok := s.Now(france, true)
	if !ok || g.GramsPerKWh != 42.5 || g.Country != "FRA" || g.Year != 0 || !strings.Contains(g.Source, "2026-11-21 12:00") {
		t.Errorf("%+v", g)
	}
	if len(asked) != 1 || asked[0] != "/v3/carbon-intensity/latest?countryCode=FR tok" {
		t.Errorf("%q", asked)
	}

	// After a failure it is asked again in 30 s, then in a minute; what is
	// known stays for a while, and not for ever.
	now, status = now.Add(2*time.Minute), http.StatusUnauthorized
	for _, c := range []struct {
		after time.Duration
		asks  int
	}{{0, 1}, {20 * time.Second, 0}, {11 * time.Second, 1}, {50 * time.Second, 0}, {11 * time.Second, 1}} {
		now = now.Add(c.after)
		before := len(asked)
		if err := s.Refresh(t.Context(), france, true); err == nil || strings.Contains(err.Error(), "tok\"") {
			t.Errorf("%v", err)
		}
		if len(asked)-before != c.asks {
			t.Errorf("after %v more: asked %d times, want %d", c.after, len(asked)-before, c.asks)
		}
	}
	if _, ok := s.Now(france, true); !ok {
		t.Error("forgotten")
	}
	now = now.Add(3 * time.Hour)
	if _, ok := s.Now(france, true); ok {
		t.Error("an old value is told as live")
	}

	status = http.StatusOK
	for _, bad := range []string{`{}`, `{"carbonIntensity":-1}`, `{"carbonIntensity":1e9}`, `x`, `{"carbonIntensity":"1"}`} {
		body = bad
		fresh := New(Options{Base: server.URL, Token: func() string { return "" }})
		if err := fresh.Refresh(t.Context(), france, true); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	zoned := New(Options{Base: server.URL, Token: func() string { return "" }, Zone: "US-CAL CISO"})
	_ = zoned.Refresh(t.Context(), carbon.Location{Country: "USA"}, true)
	_ = zoned.Refresh(t.Context(), carbon.Location{Country: "USA"}, false)
	if a := asked[len(asked)-2:]; !strings.Contains(a[0], "zone=US-CAL+CISO") || !strings.Contains(a[1], "countryCode=US") {
		t.Errorf("%q", a)
	}
	if err := zoned.Refresh(t.Context(), carbon.Location{Cloud: "gcp", Region: "x"}, false); err == nil {
		t.Error("a cloud's region was asked about")
	}

	// The mean of Canada is no number of Quebec's, which has forty times less.
	quebec := carbon.Location{Country: "CAN", Region: "quebec"}
	body = `{"carbonIntensity":170}`
	mean := New(Options{Base: server.URL, Token: func() string { return "" }})
	if err := mean.Refresh(t.Context(), carbon.Location{Country: "CAN"}, true); err != nil {
		t.Fatal(err)
	}
	if err := mean.Refresh(t.Context(), quebec, true); err == nil || !strings.Contains(err.Error(), "carbon.electricityMapsZone") {
		t.Errorf("a region was asked about as its country: %v", err)
	}
	if g, ok := mean.Now(quebec, true); ok {
		t.Errorf("%+v", g)
	}
	zoned = New(Options{Base: server.URL, Token: func() string { return "" }, Zone: "CA-QC"})
	if err := zoned.Refresh(t.Context(), quebec, true); err != nil {
		t.Error(err)
	}
	if g, ok := zoned.Now(quebec, true); !ok || g.Region != "quebec" {
		t.Errorf("%+v", g)
	}
}

func TestLocate(t *testing.T) {
	asked := 0
	answers := map[string]string{
		"/geojs":  `{"country_code3":"USA","region":"California","latitude":"1"}`,
		"/ipinfo": `{"country":"FR","region":"Île-de-France"}`,
		"/bad":    `{"country":"Atlantis"}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if answers[r.URL.Path] == "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	defer server.Close()
	tables, err := carbon.Load()
	if err != nil {
		t.Fatal(err)
	}
	has := func(l carbon.Location) bool { _, err := tables.Grid(l); return err == nil }
	now := time.Now()
	for _, c := range []struct{ paths, want string }{
		{"/geojs", "USA/California"}, {"/none /ipinfo", "FRA"}, {"/bad /geojs", "USA/California"}, {"/none /bad", ""},
	} {
		l := &Locator{Dir: store.At(filepath.Join(t.TempDir(), "x")), Now: func() time.Time { return now }}
		for _, p := range strings.Fields(c.paths) {
			l.URLs = append(l.URLs, server.URL+p)
		}
		if _, ok := l.Known(); ok {
			t.Error("known before anybody asked")
		}
		got, err := l.Locate(t.Context(), has)
		if got.String() != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %s, %v", c.paths, got, err)
		}
		if c.want == "" {
			continue
		}
		before := asked
		if again, err := l.Locate(t.Context(), has); err != nil || again != got || asked != before {
			t.Errorf("%s, asked %d times more, %v", again, asked-before, err)
		}
		now = now.Add(-48 * time.Hour) // the clock was set back
		if _, ok := l.Known(); ok {
			t.Error("known from the future")
		}
		now = now.Add(48*time.Hour + 25*time.Hour)
		if _, ok := l.Known(); ok {
			t.Error("known after a day")
		}
	}
	// Where there is no place to keep it, it is still found.
	l := &Locator{URLs: []string{server.URL + "/geojs"}}
	if got, err := l.Locate(t.Context(), has); err != nil || got.Country != "USA" {
		t.Errorf("%s, %v", got, err)
	}
}
