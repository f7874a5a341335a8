package environment_test

import (
	"testing"

	"github.com/sallyport/sallyport/internal/environment"
)

func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		specifier string
		want      bool
	}{
		{"", true}, {">=3.9", true}, {">=3.11, <4", true}, {">=3.12", false}, {">3.11", true}, {">=3.11.4", true}, {">=3", true},
		{"<3.11", false}, {"<3.11.4", true}, {"<3.11.0", false}, {"<=3.11", false}, {"<=3.11.9", true}, {"<=3.12", true}, {"<4", true},
		{"==3.11.*", true}, {"==3.10.*", false}, {"==3.*", true}, {"==3.11", true}, {"==3.11.2", true}, {"===3.11", true},
		{"!=3.11.*", false}, {"!=3.11.1", true}, {"!=3.10.*", true}, {"!=3.*", false}, {"!=3.11", true},
		{"~=3.10", true}, {"~=3.12", false}, {"~=3.10.2", false}, {"~=3.11.2", true}, {"~=2.7", false}, {">=2.7,!=3.0.*", true}, {">=4", false},
	} {
		if got, err := environment.Accepts(c.specifier, 3, 11); got != c.want || err != nil {
			t.Errorf("%q accepts 3.11: got %v (%v), want %v", c.specifier, got, err, c.want)
		}
	}
	for _, wrong := range []string{"3.11", ">=", ">=x", ">=3.11.*", "~=3", "=>3.9", ">=3.99999", ">= 3 . 9"} {
		if got, err := environment.Accepts(wrong, 3, 11); err == nil {
			t.Errorf("%q: got %v, want an error", wrong, got)
		}
	}
}

func FuzzAccepts(f *testing.F) {
	for _, seed := range []string{">=3.11,<4", "==3.*", "~=3.10.2", "!=3.1.*", "<", ">=3..1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, specifier string) {
		if got, err := environment.Accepts(specifier, 3, 11); got && err != nil {
			t.Errorf("%q: got an error, %v, and true", specifier, err)
		}
	})
}
