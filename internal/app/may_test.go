package app

import (
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/settings"
)

// TestMayAsk: the words of servers.may, as the gate applies them.
func TestMayAsk(t *testing.T) {
	set, err := settings.Load(settings.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	forms := inquiry.Takes{Forms: true, URLs: true, Roots: true}
	all := forms
	all.Sampling = true
	for _, test := range []struct {
		may  []string
		want inquiry.Takes
	}{
		{set.Servers.May, forms},
		{nil, inquiry.Takes{}},
		{[]string{"elicit", "sample"}, all},
		{[]string{"elicit", "fs=sample"}, inquiry.Takes{Sampling: true, Roots: true}},
		{[]string{"elicit", "fs=none"}, inquiry.Takes{}},
	} {
		set.Servers.May = test.may
		if got := mayAsk(set, "fs"); got != test.want {
			t.Errorf("%q: got %+v, want %+v", test.may, got, test.want)
		}
		gate, err := gateOf(set, authz.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for method, want := range map[string]bool{inquiry.Elicitation: test.want.Forms, inquiry.Sampling: test.want.Sampling, inquiry.Roots: test.want.Roots} {
			d := gate.Decide(authz.Local("x"), authz.Inquire{Server: &authz.Server{Name: "fs"}, Request: &inquiry.Request{Method: method}})
			if got := d.Effect == authz.Allow; got != want {
				t.Errorf("%q, %s: got allowed %v (%v), want %v", test.may, method, got, d.Reason, want)
			}
		}
	}
	set.Approvals.Timeout, set.Servers.May = 0, []string{"elicit", "sample"}
	if got := mayAsk(set, "fs"); got != (inquiry.Takes{}) {
		t.Errorf("approvals.timeout: never: got %+v, want nothing", got)
	}
}
