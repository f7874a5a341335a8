package authz_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
)

// TestPackages decides on packages under each form of policy.packages.
func TestPackages(t *testing.T) {
	list := []string{"pandas>=2", "python_dateutil"}
	tests := []struct {
		name   string
		policy []string
		ask    string // requirements, separated by blanks
		effect authz.Effect
		want   string // part of the reason
	}{
		{"nothing allowed", nil, "pandas", authz.Deny, "policy.packages does not allow package pandas. The user can allow it: sallyport config set policy.packages pandas ("},
		{"no package", []string{"any"}, "", authz.Deny, "no package was named"},
		{"no name", []string{"any"}, "==2", authz.Deny, "does not name a package"},
		{"an option", []string{"any"}, "-r", authz.Deny, "does not name a package"},
		{"any", []string{"any"}, "pandas>=2 leftpad", authz.Allow, ""},
		{"any, like a popular one", []string{"any"}, "leftpad reqeusts", authz.Ask, "the popular requests"},
		{"listed", list, "Pandas[excel]>=1", authz.Allow, ""},
		{"listed, other separators", list, "Python.DateUtil", authz.Allow, ""},
		{"not listed", list, "pandas httpx", authz.Deny, "package httpx. The user can allow it: sallyport config set policy.packages 'pandas>=2' python_dateutil httpx ("},
		{"a letter replaced", list, "pandaz", authz.Deny, "package pandaz is refused: it is not in policy.packages, and its name is one letter away from pandas"},
		{"a letter added, under any", append([]string{"any"}, list...), "pandass", authz.Deny, "pandas,"},
		{"a letter dropped, under ask", append([]string{"ask"}, list...), "panda", authz.Deny, "pandas,"},
		{"a separator dropped", list, "pythondateutil", authz.Deny, "python-dateutil,"},
		{"two letters changed places", list, "padnas", authz.Deny, "pandas,"},
		{"two edits, under ask", append([]string{"ask"}, list...), "pandazz", authz.Ask, "does not list: pandazz"},
		{"listed and not, under ask", append([]string{"ask"}, list...), "pandas httpx", authz.Ask, "does not list: httpx"},
		{"two not listed, and one like a popular one", []string{"ask"}, "httpx left htpx", authz.Ask, "the popular httpx; policy.packages asks about what it does not list: httpx, left"},
		{"another script's letter", list, "pаndas", authz.Deny, "does not name a package"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gate := authz.New(authz.Config{Policy: authz.Default(), Packages: func() []string { return tt.policy }})
			d := gate.Decide(me, authz.InstallPackages{Requirements: strings.Fields(tt.ask)})
			got := ""
			if d.Reason != nil {
				got = d.Reason.Error()
			}
			if d.Effect != tt.effect || !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %s, %q; want %s, %q", d.Effect, got, tt.effect, tt.want)
			}
		})
	}
}

// TestPackagesOfAVariable: no command is suggested that would not help.
func TestPackagesOfAVariable(t *testing.T) {
	gate := authz.New(authz.Config{Policy: authz.Default(), PackagesBy: func() string { return "SALLYPORT_POLICY_PACKAGES" }})
	d := gate.Decide(me, authz.InstallPackages{Requirements: []string{"pandas"}})
	want := "policy.packages does not allow package pandas: SALLYPORT_POLICY_PACKAGES restricts it."
	if d.Effect != authz.Deny || !strings.HasPrefix(d.Reason.Error(), want) || strings.Contains(d.Reason.Error(), "config set") {
		t.Errorf("got %s, %q; want it denied with %q, and no command for the file", d.Effect, d.Reason, want)
	}
}
