package kaggle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Sources are the places of credentials: what Kaggle's own programs read from
// the environment.
type Sources struct {
	APIToken      string // KAGGLE_API_TOKEN: a token, or a file of one
	Username, Key string // KAGGLE_USERNAME, KAGGLE_KEY
	ConfigDir     string // KAGGLE_CONFIG_DIR
	Home          string
	XDGConfig     string // XDG_CONFIG_HOME
	// NotebookToken is KAGGLE_API_V1_TOKEN, a file of a token, where the
	// program runs in a Kaggle session itself.
	NotebookToken string
}

const (
	maxCredential    = 64 << 10
	credentialRemedy = "make a token on https://www.kaggle.com/settings (API) and save it as ~/.kaggle/access_token, or set KAGGLE_API_TOKEN"
)

var errNoCredentials = errors.New("no Kaggle credentials were found")

// credential authenticates the user. The first of token, key and refresh that
// is set counts.
type credential struct {
	source   string // for people
	token    string // an access token
	username string
	key      string    // of a legacy kaggle.json
	refresh  string    // of OAuth; token may be there as well
	expires  time.Time // of an OAuth token; zero is unknown
	warnings []sandbox.Finding
}

// find looks for credentials in Kaggle's own order. It sends no requests.
func (s Sources) find() (credential, error) {
	var c credential
	if token, file, err := s.accessToken(&c); err != nil || token != "" {
		c.token, c.source = token, file
		return c, err
	}
	if ok, err := s.legacy(&c); ok || err != nil {
		return c, err
	}
	if ok, err := s.oauth(&c); ok || err != nil {
		return c, err
	}
	return c, errNoCredentials
}

func (s Sources) accessToken(c *credential) (token, source string, err error) {
	if s.NotebookToken != "" {
		if token, err := c.readToken(s.NotebookToken); token != "" || err != nil {
			return token, "KAGGLE_API_V1_TOKEN", err
		}
	}
	if t := strings.TrimSpace(s.APIToken); t != "" {
		// A token may look like a path: a file takes precedence.
		if info, err := os.Stat(t); err != nil || info.IsDir() {
			return t, "KAGGLE_API_TOKEN", nil
		}
		if token, err := c.readToken(t); token != "" || err != nil {
			return token, "the file that KAGGLE_API_TOKEN names", err
		}
		return "", "", nil // like Kaggle's own programs: an empty file has no token, and ends the search
	}
	if s.Home == "" {
		return "", "", nil
	}
	for _, name := range []string{"access_token", "access_token.txt"} {
		path := filepath.Join(s.Home, ".kaggle", name)
		if token, err := c.readToken(path); token != "" || err != nil {
			return token, path, err
		}
	}
	return "", "", nil
}

// legacy looks for a user's name and for a key, each in the environment before
// the file.
func (s Sources) legacy(c *credential) (bool, error) {
	var file struct{ Username, Key string }
	path := ""
	if dir := s.configDir(); dir != "" {
		path = filepath.Join(dir, "kaggle.json")
		data, err := c.readFile(path)
		if err != nil {
			return false, err
		}
		if data != nil && json.Unmarshal(data, &file) != nil && (s.Username == "" || s.Key == "") {
			return false, fmt.Errorf("%s is not JSON as Kaggle provides it: download it again at https://www.kaggle.com/settings", path)
		}
	}
	c.username, c.key, c.source = file.Username, file.Key, path
	if s.Username != "" {
		c.username = s.Username
	}
	if s.Key != "" {
		c.key, c.source = s.Key, "KAGGLE_KEY"
	}
	if c.username != "" && c.key != "" {
		return true, nil
	}
	c.username, c.key, c.source = "", "", ""
	return false, nil
}

func (s Sources) configDir() string {
	if s.ConfigDir != "" {
		return s.ConfigDir
	}
	if s.Home == "" {
		return ""
	}
	dir := filepath.Join(s.Home, ".kaggle")
	if _, err := os.Stat(dir); err != nil && runtime.GOOS == "linux" {
		if s.XDGConfig != "" {
			return filepath.Join(s.XDGConfig, "kaggle")
		}
		return filepath.Join(s.Home, ".config", "kaggle")
	}
	return dir
}

func (s Sources) oauth(c *credential) (bool, error) {
	if s.Home == "" {
		return false, nil
	}
	path := filepath.Join(s.Home, ".kaggle", "credentials.json")
	data, err := c.readFile(path)
	if data == nil || err != nil {
		return false, err
	}
	var file struct {
		RefreshToken string `json:"refresh_token"`
		AccessToken  string `json:"access_token"`
		Expiration   string `json:"access_token_expiration"`
		Username     string `json:"username"`
	}
	if json.Unmarshal(data, &file) != nil || file.RefreshToken == "" {
		return false, nil // like Kaggle's own programs
	}
	c.source, c.refresh, c.token, c.username = path, file.RefreshToken, file.AccessToken, file.Username
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(form, file.Expiration); err == nil {
			c.expires = t
			break
		}
	}
	return true, nil
}

func (c *credential) readToken(path string) (string, error) {
	data, err := c.readFile(path)
	return strings.TrimSpace(string(data)), err
}

// readFile reads a file of credentials; it returns nil for a missing one.
func (c *credential) readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o044 != 0 {
		c.warnings = append(c.warnings, sandbox.Finding{
			Title: "other users of this machine can read your Kaggle credentials", Detail: path, Remedy: "chmod 600 " + path,
		})
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxCredential {
		return nil, fmt.Errorf("%s: too large for credentials", path)
	}
	return data, nil
}

// secrets are what must never be shown.
func (c *credential) secrets() []string {
	var all []string
	for _, s := range []string{c.token, c.key, c.refresh} {
		if len(s) >= 4 {
			all = append(all, s)
		}
	}
	return all
}
