package kaggle

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
)

// home makes a home with these files.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOrder: Kaggle's own order of precedence. Its own program finds the same
// for each case (test/kaggle).
func TestOrder(t *testing.T) {
	data, err := os.ReadFile("testdata/order.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name       string
		Files, Env map[string]string
		Want       string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, tt := range cases {
		t.Run(tt.Name, func(t *testing.T) {
			if runtime.GOOS != "linux" && strings.Contains(tt.Name, "XDG") {
				t.Skip("Linux alone")
			}
			dir := home(t, tt.Files)
			env := func(name string) string { return strings.ReplaceAll(tt.Env[name], "$HOME", dir) }
			s := Sources{
				APIToken: env("KAGGLE_API_TOKEN"), Username: env("KAGGLE_USERNAME"), Key: env("KAGGLE_KEY"),
				ConfigDir: env("KAGGLE_CONFIG_DIR"), Home: dir, XDGConfig: env("XDG_CONFIG_HOME"), NotebookToken: env("KAGGLE_API_V1_TOKEN"),
			}
			c, err := s.find()
			got := ""
			switch {
			case c.refresh != "":
				got = "refresh " + c.refresh
			case c.token != "":
				got = "token " + c.token
			case c.key != "":
				got = "key " + c.username + ":" + c.key
			}
			if got != tt.Want || (tt.Want == "") != errors.Is(err, errNoCredentials) {
				t.Errorf("%q of %q, %v; want %q", got, c.source, err, tt.Want)
			}
			if len(c.warnings) != 0 {
				t.Errorf("warnings %v", c.warnings)
			}
		})
	}
}

func TestFilesOfCredentials(t *testing.T) {
	t.Run("readable by others", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("no modes")
		}
		s := Sources{Home: home(t, map[string]string{".kaggle/kaggle.json": `{"username":"u","key":"kkkk"}`})}
		path := filepath.Join(s.Home, ".kaggle/kaggle.json")
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := s.find()
		if err != nil || len(c.warnings) != 1 || c.warnings[0].Remedy != "chmod 600 "+path || c.warnings[0].Fatal {
			t.Errorf("%+v, %v", c.warnings, err)
		}
	})
	for name, files := range map[string]map[string]string{
		"damaged":   {".kaggle/kaggle.json": "{"},
		"too large": {".kaggle/access_token": strings.Repeat("x", maxCredential+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (Sources{Home: home(t, files)}).find(); err == nil || errors.Is(err, errNoCredentials) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		s := Sources{Home: t.TempDir()}
		if err := os.MkdirAll(filepath.Join(s.Home, ".kaggle/access_token"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := s.find(); err == nil || errors.Is(err, errNoCredentials) {
			t.Errorf("%v", err)
		}
	})
}

func TestEveryKindOfCredentialWorks(t *testing.T) {
	expired, _ := json.Marshal(map[string]string{
		"refresh_token": "refresh-of-ada", "access_token": "old", "access_token_expiration": time.Now().Add(-time.Hour).Format(time.RFC3339Nano), "username": testUser,
	})
	revoked, _ := json.Marshal(map[string]string{
		"refresh_token": "refresh-of-ada", "access_token": "revoked", "access_token_expiration": time.Now().Add(time.Hour).Format(time.RFC3339Nano), "username": testUser,
	})
	for name, s := range map[string]Sources{
		"token":         {APIToken: testToken},
		"key":           {Username: testUser, Key: "k3y-of-ada"},
		"oauth":         {Home: home(t, map[string]string{".kaggle/credentials.json": string(expired)})},
		"oauth revoked": {Home: home(t, map[string]string{".kaggle/credentials.json": string(revoked)})},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true)
			w.opts.Credentials = s
			r, err := w.engine().Probe(context.Background())
			if err != nil || !r.Usable || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Detail, "GPU: 0.0 of 30 hours used") {
				t.Fatalf("%+v, %v", r, err)
			}
			w.noSecrets()
		})
	}
	for name, s := range map[string]Sources{
		"no token any more": {APIToken: "KGAT_gone"},
		"wrong key":         {Username: testUser, Key: "wrong"},
		"none":              {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true)
			w.opts.Credentials = s
			b := w.engine()
			r, err := b.Probe(context.Background())
			if err != nil || r.Usable || len(r.Findings) != 1 || !r.Findings[0].Fatal || r.Findings[0].Remedy == "" {
				t.Errorf("%+v, %v", r, err)
			}
			_, err = b.Submit(context.Background(), w.spec("print(1)"))
			if err == nil || !strings.Contains(err.Error(), "https://www.kaggle.com/settings") {
				t.Errorf("%v", err)
			}
			if n := w.service.Calls("SaveKernel"); name != "wrong key" && n != 0 {
				t.Errorf("%d pushes", n)
			}
		})
	}
}

func TestServiceInTrouble(t *testing.T) {
	for name, f := range map[string]kaggletest.Fault{
		"too many requests":         {Kind: kaggletest.Status, Status: 429, Retry: "0"},
		"too many, the other shape": {Kind: kaggletest.Status, Status: 429, Legacy: true, Retry: "0"},
		"unavailable":               {Kind: kaggletest.Status, Status: 503},
		"dropped":                   {Kind: kaggletest.DropBefore},
	} {
		for _, call := range []string{"GetAcceleratorQuotaStatistics", "IntrospectToken"} {
			t.Run(name+" "+call, func(t *testing.T) {
				w := newWorld(t, true)
				f.Call, f.Times = call, 3
				w.service.Inject(f)
				if r, err := w.engine().Probe(context.Background()); err != nil || !r.Usable {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
	}
	t.Run("a push is repeated only where it was refused", func(t *testing.T) {
		w := newWorld(t, true)
		w.service.Inject(kaggletest.Fault{Call: "SaveKernel", Kind: kaggletest.Status, Status: 429, Retry: "0", Times: 2})
		r := w.start(w.engine(), w.spec("print(1)"))
		w.result(r)
		w.service.Inject(kaggletest.Fault{Call: "SaveKernel", Kind: kaggletest.Status, Status: 503})
		if got := w.result(w.start(w.engine(), w.spec("print(1)"))); got.End != "failed" {
			t.Errorf("%+v", got)
		}
		if n, k := w.service.Calls("SaveKernel"), len(w.service.Kernels()); n != 4 || k != 1 {
			t.Errorf("%d requests, %d kernels", n, k)
		}
	})
	t.Run("credentials that were put in place of refused ones count at once", func(t *testing.T) {
		w := newWorld(t, true)
		file := filepath.Join(t.TempDir(), "token")
		put := func(token string) {
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.opts.Credentials = Sources{APIToken: file}
		put(testToken)
		b := w.engine()
		w.result(w.start(b, w.spec("print(1)")))
		const fresh = "another-token-of-ada"
		w.account.Tokens = []string{fresh} // the first was revoked
		if _, err := b.Submit(context.Background(), w.spec("print(1)")); err == nil {
			t.Error("a revoked token was taken")
		}
		put(fresh)
		w.result(w.start(b, w.spec("print(1)")))
	})
	t.Run("a redirect takes no credentials along", func(t *testing.T) {
		w := newWorld(t, true)
		w.service.Inject(kaggletest.Fault{Call: "IntrospectToken", Kind: kaggletest.Redirect, To: w.service.StorageURL() + "/steal", Times: -1})
		if r, err := w.engine().Probe(context.Background()); err != nil || r.Usable {
			t.Errorf("%+v, %v", r, err)
		}
		for _, e := range w.service.Journal() {
			if e.Host == "storage" {
				t.Errorf("followed: %+v", e)
			}
		}
	})
	t.Run("out of reach", func(t *testing.T) {
		w := newWorld(t, true)
		w.opts.URL = "http://127.0.0.1:1"
		_, err := w.engine().Submit(context.Background(), w.spec("print(1)"))
		if err == nil || !strings.Contains(err.Error(), "no connection to Kaggle") {
			t.Errorf("%v", err)
		}
	})
}

func TestAddresses(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://api.kaggle.com": true, "http://127.0.0.1:80/api": true, "http://localhost:7777": true, "http://[::1]:1": true,
		"http://api.kaggle.com": false, "https://u:p@api.kaggle.com": false, "ftp://x": false, "": false, "https://x/?a=b": false, "http://127.0.0.1.example": false,
	} {
		if _, err := parseBase(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	public, err := parseBase(defaultURL)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(public, Options{Poll: time.Millisecond})
	defer c.close()
	for _, link := range []string{
		"http://storage.example/x", "https://127.0.0.1/x", "https://169.254.169.254/latest", "https://10.0.0.1/x", "https://[fd00::1]/x", "https://localhost/x",
		"file:///etc/passwd", "https://u:p@storage.example/x", "://",
	} {
		var refusal *refusedError
		if _, err := c.download(context.Background(), link, 100, &strings.Builder{}); !errors.As(err, &refusal) {
			t.Errorf("%s: %v", link, err)
		}
	}
}
