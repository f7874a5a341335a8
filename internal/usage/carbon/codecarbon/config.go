// Package codecarbon speaks with what people have of CodeCarbon: its
// configuration, its emissions.csv and its dashboard. It reports what this
// program measured; it measures nothing.
package codecarbon

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
)

// Version is the release of codecarbon whose formats this package writes.
const Version = "3.3.2"

// DefaultEndpoint is the public dashboard's API.
const DefaultEndpoint = "https://api.codecarbon.io"

// FileName is CodeCarbon's configuration, in the home and in the working
// directory.
const FileName = ".codecarbon.config"

// Prefix begins CodeCarbon's own environment variables.
const Prefix = "CODECARBON_"

// A Secret never shows itself.
type Secret struct{ value string }

// NewSecret wraps a string.
func NewSecret(value string) Secret { return Secret{value} }

// IsZero reports whether there is none.
func (s Secret) IsZero() bool { return s.value == "" }

// Reveal returns the secret itself, for the one header that needs it.
func (s Secret) Reveal() string { return s.value }

// Format implements fmt.Formatter.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret]") }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// Config is what is taken of CodeCarbon's configuration.
type Config struct {
	Token        Secret // of the project
	ExperimentID string
	Endpoint     string
	Project      string
	// ElectricityMaps is the token of that service.
	ElectricityMaps Secret
	// From says where each of them was found, by CodeCarbon's key.
	From map[string]string
}

// Layer is one place of configuration.
type Layer struct {
	Name string
	Keys map[string]string
	// Local is the file of the working directory, which someone else may have
	// written: it never redirects a token that stands elsewhere.
	Local bool
}

// keys that are taken, by CodeCarbon's names.
const (
	keyToken      = "api_key"
	keyExperiment = "experiment_id"
	keyEndpoint   = "api_endpoint"
	keyProject    = "project_name"
	keyMaps       = "electricitymaps_api_token"
	keyMapsOld    = "co2_signal_api_token"
)

// placeholder are CodeCarbon's default values.
const (
	noToken      = "api_key"
	noExperiment = "5b0fa12a-3dd7-45bb-9766-cc326314d9f1"
)

// Merge puts layers together; later ones win, as CodeCarbon has it. An
// endpoint of a local layer counts only with a token of the same layer.
func Merge(layers ...Layer) Config {
	c := Config{From: map[string]string{}}
	values := map[string]string{}
	for _, l := range layers {
		for key, value := range l.Keys {
			if l.Local && key == keyEndpoint && l.Keys[keyToken] == "" {
				continue
			}
			values[key], c.From[key] = value, l.Name
		}
		// A token that a stronger layer sets does not go where a local one points.
		if l.Keys[keyToken] != "" && l.Keys[keyEndpoint] == "" && c.From[keyEndpoint] != "" && local(layers, c.From[keyEndpoint]) {
			delete(values, keyEndpoint)
			delete(c.From, keyEndpoint)
		}
	}
	if values[keyToken] != noToken {
		c.Token = NewSecret(values[keyToken])
	}
	if values[keyExperiment] != noExperiment {
		c.ExperimentID = values[keyExperiment]
	}
	c.Endpoint, c.Project = values[keyEndpoint], values[keyProject]
	if c.Endpoint == "" {
		c.Endpoint = DefaultEndpoint
	}
	token := values[keyMaps]
	if token == "" {
		token = values[keyMapsOld]
	}
	c.ElectricityMaps = NewSecret(token)
	return c
}

func local(layers []Layer, name string) bool {
	for _, l := range layers {
		if l.Name == name {
			return l.Local
		}
	}
	return false
}

// Ready says what is missing to report to the dashboard; nil: nothing.
func (c *Config) Ready() error {
	switch {
	case c.Token.IsZero():
		return errors.New("no project token: set CODECARBON_API_KEY, or api_key in ~/" + FileName)
	case c.ExperimentID == "":
		return errors.New("no experiment: set CODECARBON_EXPERIMENT_ID, or experiment_id in ~/" + FileName)
	case !isUUID(c.ExperimentID):
		return fmt.Errorf("the experiment ID %q is not a UUID", c.ExperimentID)
	}
	_, err := c.base()
	return err
}

// base is the endpoint, if a token may be sent there.
func (c *Config) base() (string, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("the API endpoint %q (api_endpoint) is not a URL such as %s", c.Endpoint, DefaultEndpoint)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return "", fmt.Errorf("the API endpoint %q (api_endpoint) would send the project token in the clear: use https", c.Endpoint)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// FromEnviron is CodeCarbon's layer of an environment (NAME=VALUE).
func FromEnviron(environ []string) Layer {
	l := Layer{Name: "environment", Keys: map[string]string{}}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if key, ok := strings.CutPrefix(strings.ToUpper(name), Prefix); ok && value != "" {
			l.Keys[strings.ToLower(key)] = value
		}
	}
	return l
}

// maxConfig bounds a configuration file.
const maxConfig = 1 << 20

// ReadConfig reads a configuration file, which someone else may have put there:
// it reads no devices, waits for no pipes, and stops where a file is too large.
func ReadConfig(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConfig+1)) // one more is refused by ParseFile
}

// ParseFile reads the section [codecarbon] of a configuration file.
func ParseFile(raw []byte) (map[string]string, error) {
	if len(raw) > maxConfig {
		return nil, errors.New("the file is too large")
	}
	keys := map[string]string{}
	inside := false
	s := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))))
	s.Buffer(nil, maxConfig)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		switch {
		case line == "", line[0] == '#', line[0] == ';':
		case line[0] == '[' && line[len(line)-1] == ']':
			inside = strings.TrimSpace(line[1:len(line)-1]) == "codecarbon"
		case inside:
			i := strings.IndexAny(line, "=:")
			if i < 1 {
				return nil, fmt.Errorf("line %d is neither a section nor KEY = VALUE", n)
			}
			keys[strings.ToLower(strings.TrimSpace(line[:i]))] = strings.TrimSpace(line[i+1:])
		}
	}
	return keys, s.Err()
}

// isUUID reports whether a string has the form of a UUID.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
				return false
			}
		}
	}
	return true
}
