package settings_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestSecretsAreNotShown: not in what is in force, and not in an error.
func TestSecretsAreNotShown(t *testing.T) {
	const key = "rpa_HIDDEN0123456789"
	s := mustLoad(t, settings.Sources{Home: "/h", Environ: map[string]string{"RUNPOD_API_KEY": key, "RUNPOD_ENDPOINT_ID": "abc"}})
	if s.RunPod.Key != key || s.RunPod.Endpoint != "abc" {
		t.Fatalf("%+v", s.RunPod)
	}
	data, err := json.Marshal(s.Entries())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(data), s.YAML()} {
		if strings.Contains(text, "HIDDEN") || !strings.Contains(text, "RUNPOD_API_KEY") {
			t.Errorf("printed: %s", text)
		}
	}
	if !strings.Contains(s.YAML(), "# key:") {
		t.Errorf("printed as if it were a value: %s", s.YAML())
	}
	if s := mustLoad(t, settings.Sources{Home: "/h", Environ: map[string]string{"RUNPOD_API_KEY": "file:/etc/key"}}); !strings.Contains(s.YAML(), "file:/etc/key") {
		t.Errorf("where a secret is can be shown: %s", s.YAML())
	}
	for name, src := range map[string]settings.Sources{
		"an end of line": {Home: "/h", Environ: map[string]string{"RUNPOD_API_KEY": key + "\n"}},
		"a space":        {Home: "/h", Environ: map[string]string{"SALLYPORT_RUNPOD_KEY": " " + key}},
		"a flag":         {Home: "/h", Flags: []settings.Flag{{Name: "--set", Key: "runpod.key", Value: key}}},
		"a list":         {Home: write(t, "runpod: {key: ["+key+"]}")},
		"a section":      {Home: write(t, "runpod: {key: {a: "+key+"}}")},
	} {
		_, err := settings.Load(src)
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustLoad(t, settings.Sources{Home: "/h", Flags: []settings.Flag{{Name: "--set", Key: "runpod.key", Value: "keyring:runpod"}}})
}

func TestWhereAKeyMayGo(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://api.example.com/v2": true, "http://127.0.0.1:1/v2": true, "http://localhost:1": true, "http://[::1]:1": true,
		"http://api.example.com": false, "ftp://localhost": false, "https://u:p@h": false, "https://h?x=1": false, "nowhere": false, "http://localhost.example.com": false,
	} {
		_, err := settings.Load(settings.Sources{Home: "/h", Environ: map[string]string{"SALLYPORT_RUNPOD_URL": url}})
		if (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
}
