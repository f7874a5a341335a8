package app

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/kaggle"
	"github.com/sallyport/sallyport/internal/store"
)

// kaggle constructs the batch service on Kaggle. It makes no request yet.
func (a *App) kaggle() (batch.Service, error) {
	s := a.Settings.Kaggle
	instance, err := a.kaggleInstance()
	if err != nil {
		return nil, err
	}
	sources := kaggle.Sources{
		APIToken: a.Env["KAGGLE_API_TOKEN"], Username: a.Env["KAGGLE_USERNAME"], Key: a.Env["KAGGLE_KEY"],
		ConfigDir: a.Env["KAGGLE_CONFIG_DIR"], Home: a.Env.Home(), XDGConfig: a.Env["XDG_CONFIG_HOME"],
	}
	if a.Env["KAGGLE_KERNEL_RUN_TYPE"] != "" && a.Env["KAGGLE_DATA_PROXY_URL"] != "" { // in a session of Kaggle's itself
		sources.NotebookToken = a.Env["KAGGLE_API_V1_TOKEN"]
	}
	a.secrets.Add(sources.APIToken, sources.Key, sources.NotebookToken)
	// CodeCarbon's own tracker knows countries, and no cloud's regions.
	country, region, _ := strings.Cut(a.Settings.Carbon.Kaggle, "/")
	if country = strings.ToUpper(country); country == "GCP" {
		country, region = "", ""
	}
	return kaggle.New(kaggle.Options{
		URL: s.URL, Credentials: sources, Instance: instance,
		Accelerator: s.Accelerator, Internet: s.Internet, Keep: s.Keep, MaxOutput: a.kaggleOutput(),
		CodeCarbon: s.CodeCarbon, Country: country, Region: strings.ToLower(region),
		Proxy: a.Env.proxy(), Log: a.Log,
	})
}

// proxy returns which proxy the environment asks for, by URL.
func (e Environment) proxy() func(*url.URL) (*url.URL, error) {
	config := httpproxy.Config{
		HTTPProxy: cmp.Or(e["HTTP_PROXY"], e["http_proxy"]), HTTPSProxy: cmp.Or(e["HTTPS_PROXY"], e["https_proxy"]), NoProxy: cmp.Or(e["NO_PROXY"], e["no_proxy"]),
	}
	choose := config.ProxyFunc()
	return func(u *url.URL) (*url.URL, error) {
		proxy, err := choose(u)
		if err != nil {
			return nil, errors.New("the proxy in the environment is not a valid URL") // it may hold a password
		}
		return proxy, nil
	}
}

// kaggleInstance returns the identifier that distinguishes the runs of this state
// directory from others on the same account. It is created once.
func (a *App) kaggleInstance() (string, error) {
	const name = "instance"
	dir := a.state(store.Kaggle)
	read := func() (string, error) {
		data, err := dir.Read(name, 64)
		return strings.TrimSpace(string(data)), err
	}
	id, err := read()
	if errors.Is(err, store.ErrNoPlace) {
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
		return "", fmt.Errorf("saving the identifier of this installation's runs on Kaggle: %w", err)
	}
	return id, nil
}
