package cli

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/kaggle"
	"sallyport/internal/state"
)

// kaggle constructs the engine of that name. It asks nobody anything yet.
func (a *app) kaggle() (sandbox.Backend, error) {
	s := a.settings.Kaggle
	instance, err := a.kaggleInstance()
	if err != nil {
		return nil, err
	}
	sources := kaggle.Sources{
		APIToken: a.env["KAGGLE_API_TOKEN"], Username: a.env["KAGGLE_USERNAME"], Key: a.env["KAGGLE_KEY"],
		ConfigDir: a.env["KAGGLE_CONFIG_DIR"], Home: a.env.home(), XDGConfig: a.env["XDG_CONFIG_HOME"],
	}
	if a.env["KAGGLE_KERNEL_RUN_TYPE"] != "" && a.env["KAGGLE_DATA_PROXY_URL"] != "" { // in a session of Kaggle's itself
		sources.NotebookToken = a.env["KAGGLE_API_V1_TOKEN"]
	}
	// CodeCarbon's own tracker knows countries, and no cloud's regions.
	country, region, _ := strings.Cut(a.settings.Carbon.Kaggle, "/")
	if country = strings.ToUpper(country); country == "GCP" {
		country, region = "", ""
	}
	return kaggle.New(kaggle.Options{
		URL: s.URL, Credentials: sources, Instance: instance,
		Accelerator: s.Accelerator, Internet: s.Internet, Keep: s.Keep, MaxOutput: a.kaggleOutput(),
		CodeCarbon: s.CodeCarbon, Country: country, Region: strings.ToLower(region),
		Proxy: a.env.proxy(), Log: a.log,
	})
}

// proxy is how the environment wants hosts to be reached.
func (e environment) proxy() func(*url.URL) (*url.URL, error) {
	config := httpproxy.Config{
		HTTPProxy: cmp.Or(e["HTTP_PROXY"], e["http_proxy"]), HTTPSProxy: cmp.Or(e["HTTPS_PROXY"], e["https_proxy"]), NoProxy: cmp.Or(e["NO_PROXY"], e["no_proxy"]),
	}
	choose := config.ProxyFunc()
	return func(u *url.URL) (*url.URL, error) {
		proxy, err := choose(u)
		if err != nil {
			return nil, errors.New("the proxy of the environment is not a usable URL") // it may hold a password
		}
		return proxy, nil
	}
}

// kaggleInstance tells the runs of this state directory from others of the same
// account. It is made once.
func (a *app) kaggleInstance() (string, error) {
	const name = "instance"
	dir := state.At(a.settings.StateDir).Sub("kaggle")
	read := func() (string, error) {
		data, err := dir.Read(name, 64)
		return strings.TrimSpace(string(data)), err
	}
	id, err := read()
	if errors.Is(err, state.ErrNoPlace) {
		return "nostate", nil // no run starts without a place for its record
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	unlock, err := dir.Lock(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if id, err := read(); err == nil {
		return id, nil
	}
	id = strings.ToLower(rand.Text()[:8])
	if err := dir.Write(name, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("remembering which runs on Kaggle are ours: %w", err)
	}
	return id, nil
}
