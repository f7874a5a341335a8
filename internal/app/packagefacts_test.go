package app

import (
	"testing"

	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image/build"
)

// An environment that is built has the modules of its record; another one has what its
// definition requests.
func TestProvides(t *testing.T) {
	d := &environment.Definition{Packages: []build.Requirement{"scikit_learn[all]>=1", "pandas; python_version > '3'"}}
	b := &environment.Built{Modules: []string{"numpy", "pandas", "sklearn"}, Packages: []environment.Package{{Name: "scikit-learn"}, {Name: "Google.Cloud_Storage"}}}
	for _, tt := range []struct {
		built       *environment.Built
		module, pkg string
		want        bool
	}{
		{nil, "sklearn", "scikit-learn", true},
		{nil, "numpy", "numpy", false},
		{nil, "pandas", "", true},
		{nil, "", "", false},
		{b, "numpy", "numpy", true},
		{b, "google", "google-cloud-storage", true},
		{b, "helper", "", false},
		{b, "", "", false},
	} {
		if got := provides(d, tt.built, tt.module, tt.pkg); got != tt.want {
			t.Errorf("built %t, module %q, package %q: got %t, want %t", tt.built != nil, tt.module, tt.pkg, got, tt.want)
		}
	}
}
