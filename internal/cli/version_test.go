package cli

import "testing"

func TestVersionToClients(t *testing.T) {
	for version, want := range map[string]string{
		"dev":          "dev",
		"v1.2.3":       "1.2.3",
		"v1.2.3+dirty": "1.2.3",
		"v1.2.3-rc.1":  "1.2.3-rc.1",
		"v0.0.0-20261121195813-ac48fa8c10ef+dirty": "dev",
	} {
		if got := (versionInfo{Version: version}).toClients(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
