package settings_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/settings"
)

// write makes a configuration file in a new home directory.
func write(t *testing.T, content string) (home string) {
	t.Helper()
	home = t.TempDir()
	dir := filepath.Join(home, ".config", "sallyport")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

func mustLoad(t *testing.T, src settings.Sources) *settings.Settings {
	t.Helper()
	s, err := settings.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fails checks that Load fails with messages that contain the parts, and
// returns the problems.
func fails(t *testing.T, src settings.Sources, parts ...string) []settings.Problem {
	t.Helper()
	s, err := settings.Load(src)
	if err == nil {
		t.Fatalf("Load accepted it:\n%s", s.YAML())
	}
	var e *settings.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is a %T", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message lacks %q:\n%v", part, err)
		}
	}
	return e.Problems
}

func TestDefaults(t *testing.T) {
	s := mustLoad(t, settings.Sources{Home: "/home/u"})
	want := settings.Settings{Engine: "auto", Python: "python3", StateDir: "/home/u/.local/state/sallyport"}
	want.Timeouts = settings.Timeouts{
		Default: 30 * time.Second, Max: 2 * time.Minute, WholeRun: 10 * time.Minute, Grace: 2 * time.Second, Start: time.Minute,
	}
	want.Limits = settings.Limits{Memory: 512 << 20, Processes: 128, Workspace: 128 << 20, Tmp: 64 << 20, Packages: 1 << 30, OpenFiles: 1024, Output: 1 << 20}
	want.Policy.MinIsolation = "wasm"
	want.Policy.Require.Memory, want.Policy.Require.Processes, want.Policy.Require.OpenFiles = "soft", "soft", "soft"
	want.Policy.Require.Disk, want.Policy.Require.CPU = "hard", "absent"
	want.Policy.Servers, want.Policy.Profile = []string{"*"}, "open"
	want.Policy.Packages = []string{"none"}
	want.Policy.Executions.Queued, want.Policy.Executions.PerClient.Queued = 1024, 256
	want.Policy.Remote.MinIsolation, want.Policy.Remote.Memory, want.Policy.Remote.Processes = "platform", "soft", "soft"
	want.Hub = settings.Hub{Enabled: true, Idle: 10 * time.Minute}
	want.Approvals.Timeout = 5 * time.Minute
	want.Audit = settings.Audit{Mode: settings.AuditOn, Code: "hash", Arguments: "hash", RotateSize: 16 << 20, RotateAge: 24 * time.Hour, MaxDisk: 1 << 30, Keep: 2160 * time.Hour}
	want.Answer = settings.Answer{Within: 50 * time.Second, Tokens: 10000}
	want.Artifacts = settings.Artifacts{Keep: 720 * time.Hour, MaxDisk: 4 << 30}
	want.Runs = settings.Runs{Timeout: 10 * time.Minute, MaxTimeout: 12 * time.Hour, Queue: time.Hour, Keep: 720 * time.Hour, MaxDisk: 32 << 30}
	want.Kaggle = settings.Kaggle{URL: "https://api.kaggle.com", Accelerator: "none", MaxOutput: 1 << 30}
	want.Sessions = settings.Sessions{
		BackgroundCPU: 0.1, Snapshots: "auto", Idle: 15 * time.Minute, Keep: 168 * time.Hour, MaxRunning: 16, MaxDisk: 4 << 30, MaxNamed: 256, Pack: true, Logs: 16 << 20,
	}
	want.Images = settings.Images{Pull: "missing", MaxSize: 32 << 30}
	want.Container = settings.Container{User: "65534:65534", IdleTimeout: 5 * time.Minute}
	want.Servers = settings.Servers{
		Sources: []string{"*"}, StartTimeout: time.Minute, CallTimeout: 10 * time.Minute, StopGrace: 2 * time.Second, MaxMessage: 256 << 20, MaxCalls: 128, ChangedTools: "note",
	}
	want.Servers.May, want.Servers.Sampling.Calls, want.Servers.Sampling.Tokens = []string{"elicit"}, 10, 20000
	want.Catalog = settings.Catalog{Refresh: "auto", MaxAge: 24 * time.Hour}
	want.Cache = settings.Cache{Entries: 4096, Bytes: 64 << 20}
	want.Memory = settings.Memory{Enabled: true, MaxValue: 4 << 20, MaxKeys: 10000, MaxTotal: 256 << 20}
	want.Saved = settings.SavedTools{Enabled: true, MaxTools: 1000, Versions: 20}
	want.RunPod = settings.RunPod{URL: "https://api.runpod.ai/v2", MaxExecutionTime: 30 * time.Second}
	want.Worker = settings.Worker{Engine: "gvisor", Concurrency: 1, Timeout: 30 * time.Second, MaxTimeout: 12 * time.Hour, Drain: 30 * time.Second, KeepResults: 30 * time.Minute, Files: 1 << 20}
	want.Deploy = settings.Deploy{
		Name: "sallyport", URL: "https://api.runpod.io", GPUCount: 1, VCPUs: 2, Disk: 20, MinWorkers: 1, MaxWorkers: 3,
		Idle: 5 * time.Minute, Timeout: 10 * time.Minute, QueueDelay: 4 * time.Second, FlashBoot: "flashboot", Wait: 15 * time.Minute,
	}
	want.Output = settings.Output{Mode: "compact", Structured: "auto", Fold: true}
	want.Carbon = settings.Carbon{Enabled: true, Method: "sallyport", Intensity: -1, PUE: 1, MapsURL: "https://api.electricitymaps.com", Dashboard: "auto", Keep: 9600 * time.Hour}
	want.Log = settings.Log{Level: slog.LevelWarn, Format: "auto"}
	compare(t, *s, want)
	if f := s.File(); f.Path != "/home/u/.config/sallyport/config.yaml" || f.Read {
		t.Errorf("file %+v", f)
	}
	for _, e := range s.Entries() {
		if e.Origin != (settings.Origin{Layer: settings.LayerDefault}) {
			t.Errorf("%s comes from %v", e.Key, e.Origin)
		}
	}
}

// compare compares the exported fields.
func compare(t *testing.T, got, want settings.Settings) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		f := g.Type().Field(i)
		if f.IsExported() && !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			t.Errorf("%s is %+v, want %+v", f.Name, g.Field(i).Interface(), w.Field(i).Interface())
		}
	}
}

func TestWithoutHome(t *testing.T) {
	s := mustLoad(t, settings.Sources{})
	if s.StateDir != "" || s.File().Path != "" {
		t.Errorf("places without a home: %q, %q", s.StateDir, s.File().Path)
	}
	// The XDG specification says that relative ones are to be ignored.
	s = mustLoad(t, settings.Sources{Environ: map[string]string{"XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "s"}, Home: "/h"})
	if s.StateDir != "/h/.local/state/sallyport" || s.File().Path != "/h/.config/sallyport/config.yaml" {
		t.Errorf("relative base directories count: %q, %q", s.StateDir, s.File().Path)
	}
	s = mustLoad(t, settings.Sources{Environ: map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, Home: "/h"})
	if s.StateDir != "/s/sallyport" || s.File().Path != "/c/sallyport/config.yaml" {
		t.Errorf("base directories: %q, %q", s.StateDir, s.File().Path)
	}
}

// everything sets each setting to something that is not its zero value.
const everything = `
engine: gvisor
image: python:3.14-slim
python: /usr/bin/python3
stateDir: ~/state
timeouts: {default: 40, max: 50s, wholeRun: 1h30m, grace: 0.5, start: 5s}
limits:
  memory: 1.5g
  processes: 64
  cpus: 0.5
  workspace: 1gib
  tmp: 1048576
  packages: 2g
  openFiles: 256
  output: 2MB
files:
  mounts: ["~/data:rw", out:/mnt/other:copy, {host: /srv/x, sandbox: /srv/y}]
  roots: true
policy:
  minIsolation: container
  require: {memory: hard, processes: hard, disk: soft, openFiles: absent, cpu: soft}
  servers: [git*, "a,b"]
  requests: [npx -y @x/server-* ..., "https://*.example.com/mcp"]
  packages: [pandas>=2, ask]
  profile: careful
  tools:
    - server: "*"
      action: ask
  batchServices: {minIsolation: kernel, memory: hard, processes: absent}
  executions: {running: 4, queued: 100, perClient: {running: 2, queued: 10}}
batch: {services: [kaggle, runpod]}
artifacts: {keep: 2h, maxDisk: 2m}
runs: {timeout: 5m, maxTimeout: 1h, queue: 10m, keep: 24h, maxDisk: 3g}
kaggle: {url: "http://127.0.0.1:7777/api", accelerator: gpu, internet: true, keep: true, maxOutput: 2m, codecarbon: true}
sessions:
  backgroundCpu: unlimited
  snapshots: "off"
  preload: [numpy, os.path]
  idle: 1h
  keep: 48h
  maxRunning: 3
  pool: auto
  maxDisk: 1g
  maxNamed: 4
  pack: true
  logs: 32m
runpod: {key: "keyring:runpod", endpoint: 4m7x2k9q, url: "http://127.0.0.1:8080/v2", acceptUnknownWorker: true, maxExecutionTime: 1m}
worker: {engine: process, concurrency: 2, sessions: 3, timeout: 1m, maxTimeout: 2m, drain: 10s, keepResults: 5m, progress: 5s, internet: true, refresh: true, files: 2m}
deploy:
  runpod:
    {name: own, url: "http://127.0.0.1:8081", image: "a/b:1", gpu: [ADA_24], gpuCount: 2, cpu: cpu3c, vcpus: 4, disk: 30, minWorkers: 2, maxWorkers: 4, idleTimeout: 1m, timeout: 2m, queueDelay: 1s, flashboot: "off", registry: reg1, dataCenters: [EU-RO-1], wait: 3m}
tools: {runpod: true}
images: {pull: always, plainHttp: ["registry.example.com"], maxSize: 1g}
container:
  user: 1000:1000
  runtime: runsc
  userNamespace: auto
  startMachine: true
  idleTimeout: 10m
servers:
  config: [one.json]
  fallbackConfig: ~/two.json
  sources: [mcps, cursor]
  allowSelf: true
  inherit: [GITHUB_TOKEN, AWS_*]
  startTimeout: 10s
  callTimeout: unlimited
  idleStop: 5m
  connections: [slow=4]
  sharing: [mine=session, client]
  may: [none, mine=sample]
  sampling: {calls: 3, tokens: 4000}
  plainHttp: [mcp.local, 10.0.*]
  clientMetadata: https://example.com/client.json
  stopGrace: 1s
  maxMessage: 64m
  maxCalls: 4
  changedTools: refuse
catalog: {refresh: manual, maxAge: 1h}
cache: {entries: 10, bytes: 2m, disk: true}
memories: {enabled: true, maxValue: 1m, maxKeys: 5, maxTotal: 2m}
savedTools: {enabled: true, maxTools: 6, versions: 7}
audit: {mode: strict, code: complete, arguments: omit, rotateSize: 1m, rotateAge: 1h, maxDisk: 2m, keep: 48h}
approvals:
  timeout: 2m
  notify: {desktop: true, command: [/usr/bin/say, --loud], webhook: https://example.com/hook, secret: "keyring:approvals"}
hub:
  enabled: true
  idle: 1m
answer: {within: 20s, tokens: 2000}
output:
  mode: TOON
  structured: never
  fold: true
  usage: true
carbon:
  enabled: true
  method: codecarbon
  location: USA/california
  detectLocation: true
  intensity: 42.5
  pue: 1.2
  electricityMapsUrl: http://127.0.0.1:1
  electricityMapsZone: US-CAL-CISO
  csv: emissions.csv
  dashboard: "on"
  keep: 48h
  kaggle: {location: gcp/us-central1}
  runpod: {location: FRA}
metrics: {listen: 9464}
traces: {endpoint: "http://localhost:4318"}
log:
  level: INFO
  format: json
debug:
  gvisor: logs
environment: data
environments:
  slim: {image: "python:3.14-slim"}
  data:
    python: 3.10
    packages: [numpy, "pandas[excel]>=2,<3; python_version >= '3.9'"]
    file: requirements.txt
    preload: [pandas]
    limits: {memory: 1g, cpus: 2}
`

func TestWholeFile(t *testing.T) {
	home := write(t, everything)
	dir := filepath.Join(home, ".config", "sallyport")
	for _, f := range []string{filepath.Join(dir, "one.json"), filepath.Join(home, "two.json")} {
		if err := os.WriteFile(f, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustLoad(t, settings.Sources{Home: home, Dir: "/somewhere"})
	if !s.File().Read {
		t.Error("the file was not read")
	}
	want := settings.Settings{Engine: "gvisor", Image: "python:3.14-slim", Python: "/usr/bin/python3", StateDir: filepath.Join(home, "state")}
	want.Timeouts = settings.Timeouts{
		Default: 40 * time.Second, Max: 50 * time.Second, WholeRun: 90 * time.Minute, Grace: time.Second / 2, Start: 5 * time.Second,
	}
	want.Limits = settings.Limits{Memory: 3 << 29, Processes: 64, CPUs: 0.5, Workspace: 1 << 30, Tmp: 1 << 20, Packages: 2 << 30, OpenFiles: 256, Output: 2 << 20}
	want.Policy.MinIsolation = "container"
	want.Policy.Require.Memory, want.Policy.Require.Processes, want.Policy.Require.Disk = "hard", "hard", "soft"
	want.Policy.Require.OpenFiles, want.Policy.Require.CPU = "absent", "soft"
	want.Policy.Servers = []string{"git*", "a,b"}
	want.Policy.Remote.MinIsolation, want.Policy.Remote.Memory, want.Policy.Remote.Processes = "kernel", "hard", "absent"
	want.BatchServices = []string{"kaggle", "runpod"}
	want.Hub = settings.Hub{Enabled: true, Idle: time.Minute}
	want.Traces = settings.Traces{Endpoint: "http://localhost:4318"}
	want.Metrics = settings.Metrics{Listen: "127.0.0.1:9464"}
	want.Answer = settings.Answer{Within: 20 * time.Second, Tokens: 2000}
	want.Runs = settings.Runs{Timeout: 5 * time.Minute, MaxTimeout: time.Hour, Queue: 10 * time.Minute, Keep: 24 * time.Hour, MaxDisk: 3 << 30}
	want.Kaggle = settings.Kaggle{URL: "http://127.0.0.1:7777/api", Accelerator: "gpu", Internet: true, Keep: true, MaxOutput: 2 << 20, CodeCarbon: true}
	want.Policy.Executions.Running, want.Policy.Executions.Queued = 4, 100
	want.Policy.Executions.PerClient.Running, want.Policy.Executions.PerClient.Queued = 2, 10
	want.Policy.Packages = []string{"pandas>=2", "ask"}
	want.Policy.Requests = []string{"npx -y @x/server-* ...", "https://*.example.com/mcp"}
	want.Policy.Profile = "careful"
	want.Sessions = settings.Sessions{BackgroundCPU: -1, Snapshots: "off", Preload: []string{"numpy", "os.path"}, Idle: time.Hour, Keep: 48 * time.Hour, MaxRunning: 3, MaxDisk: 1 << 30, MaxNamed: 4, Pack: true, Logs: 32 << 20, Pool: settings.PoolAuto}
	want.Images = settings.Images{Pull: "always", PlainHTTP: []string{"registry.example.com"}, MaxSize: 1 << 30}
	want.Container = settings.Container{User: "1000:1000", Runtime: "runsc", UserNamespace: "auto", StartMachine: true, IdleTimeout: 10 * time.Minute}
	want.Servers = settings.Servers{
		Config: []string{filepath.Join(dir, "one.json")}, FallbackConfig: filepath.Join(home, "two.json"),
		Sources: []string{"mcps", "cursor"}, AllowSelf: true, Inherit: []string{"GITHUB_TOKEN", "AWS_*"},
		Connections: []string{"slow=4"}, Sharing: []string{"mine=session", "client"}, PlainHTTP: []string{"mcp.local", "10.0.*"}, ClientMetadata: "https://example.com/client.json",
		StartTimeout: 10 * time.Second, CallTimeout: -1, IdleStop: 5 * time.Minute, StopGrace: time.Second, MaxMessage: 64 << 20, MaxCalls: 4, ChangedTools: "refuse",
	}
	want.Servers.May, want.Servers.Sampling.Calls, want.Servers.Sampling.Tokens = []string{"none", "mine=sample"}, 3, 4000
	want.Catalog = settings.Catalog{Refresh: "manual", MaxAge: time.Hour}
	want.Cache = settings.Cache{Entries: 10, Bytes: 2 << 20, Disk: true}
	want.Memory = settings.Memory{Enabled: true, MaxValue: 1 << 20, MaxKeys: 5, MaxTotal: 2 << 20}
	want.Saved = settings.SavedTools{Enabled: true, MaxTools: 6, Versions: 7}
	want.RunPod = settings.RunPod{Key: "keyring:runpod", Endpoint: "4m7x2k9q", URL: "http://127.0.0.1:8080/v2", AcceptUnknownWorker: true, MaxExecutionTime: time.Minute}
	want.Worker = settings.Worker{
		Engine: "process", Concurrency: 2, Sessions: 3, Timeout: time.Minute, MaxTimeout: 2 * time.Minute, Drain: 10 * time.Second, KeepResults: 5 * time.Minute,
		Progress: 5 * time.Second, Internet: true, Refresh: true, Files: 2 << 20,
	}
	want.Deploy = settings.Deploy{
		Name: "own", URL: "http://127.0.0.1:8081", Image: "a/b:1", GPUs: []string{"ADA_24"}, GPUCount: 2, CPU: "cpu3c", VCPUs: 4, Disk: 30, MinWorkers: 2, MaxWorkers: 4,
		Idle: time.Minute, Timeout: 2 * time.Minute, QueueDelay: time.Second, FlashBoot: "off", Registry: "reg1", DataCenters: []string{"EU-RO-1"}, Wait: 3 * time.Minute,
	}
	want.Tools.RunPod = true
	want.Output = settings.Output{Mode: "toon", Structured: "never", Fold: true, Usage: true}
	want.Audit = settings.Audit{Mode: settings.AuditStrict, Code: "complete", Arguments: "omit", RotateSize: 1 << 20, RotateAge: time.Hour, MaxDisk: 2 << 20, Keep: 48 * time.Hour}
	want.Approvals.Timeout = 2 * time.Minute
	want.Approvals.Notify.Desktop, want.Approvals.Notify.Command = true, []string{"/usr/bin/say", "--loud"}
	want.Approvals.Notify.Webhook, want.Approvals.Notify.Secret = "https://example.com/hook", "keyring:approvals"
	want.Carbon = settings.Carbon{
		Enabled: true, Method: "codecarbon", Location: "USA/california", DetectLocation: true, Kaggle: "gcp/us-central1", RunPod: "FRA",
		Intensity: 42.5, PUE: 1.2, Zone: "US-CAL-CISO", MapsURL: "http://127.0.0.1:1", CSV: filepath.Join(dir, "emissions.csv"), Dashboard: "on", Keep: 48 * time.Hour,
	}
	want.Artifacts = settings.Artifacts{Keep: 2 * time.Hour, MaxDisk: 2 << 20}
	want.Files = settings.Files{Mounts: []string{home + "/data:rw", filepath.Join(dir, "out") + ":/mnt/other:copy", "/srv/x:/srv/y"}, Roots: true}
	want.Log = settings.Log{Level: slog.LevelInfo, Format: "json"}
	want.Debug.GVisor = filepath.Join(dir, "logs")
	want.Environment = "data"
	want.Environments = []settings.Environment{
		{
			Name: "data", Python: "3.10", Packages: []string{"numpy", "pandas[excel]>=2,<3; python_version >= '3.9'"},
			File: filepath.Join(dir, "requirements.txt"), Preload: []string{"pandas"}, Limits: settings.Limits{Memory: 1 << 30, CPUs: 2},
		},
		{Name: "slim", Image: "python:3.14-slim"},
	}
	compare(t, *s, want)

	// Every setting is in that file, and every field belongs to a setting.
	for _, e := range s.Entries() {
		if e.Origin.Layer != settings.LayerFile || e.Origin.Line == 0 {
			t.Errorf("%s comes from %v: it is missing in the test's file", e.Key, e.Origin)
		}
	}
	if got := s.Origin("limits.memory").Line; got != 8 {
		t.Errorf("limits.memory is in line %d", got)
	}
	var walk func(string, reflect.Value)
	walk = func(name string, v reflect.Value) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					walk(name+"."+f.Name, v.Field(i))
				}
			}
			return
		}
		if v.IsZero() && name != ".Log.Level" { // info is zero
			t.Errorf("no setting fills %s", name)
		}
	}
	walk("", reflect.ValueOf(*s))

	// What is printed is a file that gives the same.
	again := mustLoad(t, settings.Sources{Home: write(t, s.YAML())})
	compare(t, *again, want)
}

func TestPrintedDefaultsAreAFile(t *testing.T) {
	s := mustLoad(t, settings.Sources{Home: "/h"})
	again := mustLoad(t, settings.Sources{Home: write(t, s.YAML())})
	compare(t, *again, *s)
}

func TestLaterLayersWin(t *testing.T) {
	home := write(t, "timeouts:\n  default: 11\nlimits:\n  memory: 100m\n  processes: 33\noutput: {mode: compact}\n")
	flag := []settings.Flag{{Name: "--set timeouts.default", Key: "timeouts.default", Value: "14"}}
	legacy := map[string]string{"MCP_BRIDGE_TIMEOUT": "12", "MCP_BRIDGE_MEMORY": "200m", "MCP_BRIDGE_OUTPUT_MODE": "toon"}
	both := map[string]string{"MCP_BRIDGE_TIMEOUT": "12", "SALLYPORT_TIMEOUTS_DEFAULT": "13", "MCP_BRIDGE_MEMORY": "200m", "MCP_BRIDGE_OUTPUT_MODE": ""}
	tests := []struct {
		name string
		src  settings.Sources
		want time.Duration
		from string
	}{
		{"default", settings.Sources{}, 30 * time.Second, "default"},
		{"file", settings.Sources{Home: home}, 11 * time.Second, filepath.Join(home, ".config/sallyport/config.yaml") + ":2"},
		{"the first bridge's", settings.Sources{Home: home, Environ: legacy}, 12 * time.Second, "MCP_BRIDGE_TIMEOUT"},
		{"ours", settings.Sources{Home: home, Environ: both}, 13 * time.Second, "SALLYPORT_TIMEOUTS_DEFAULT"},
		{"flag", settings.Sources{Home: home, Environ: both, Flags: flag}, 14 * time.Second, "--set timeouts.default"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustLoad(t, tt.src)
			if s.Timeouts.Default != tt.want {
				t.Errorf("got %v, want %v", s.Timeouts.Default, tt.want)
			}
			if got := s.Origin("timeouts.default").String(); got != tt.from {
				t.Errorf("from %q, want %q", got, tt.from)
			}
		})
	}
	s := mustLoad(t, settings.Sources{Home: home, Environ: both})
	if s.Limits.Memory != 200<<20 || s.Limits.Processes != 33 || s.Output.Mode != "compact" {
		t.Errorf("mixed layers: %+v, %+v", s.Limits, s.Output)
	}
}

// TestFirstBridge: the thirteen variables and the one that was not documented,
// with the values that its documentation shows.
func TestFirstBridge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, value string
		got         func(*settings.Settings) any
		want        any
	}{
		{"MCP_BRIDGE_RUNTIME", "auto", func(s *settings.Settings) any { return s.Engine }, "auto"},
		{"MCP_BRIDGE_RUNTIME", "podman", func(s *settings.Settings) any { return s.Engine }, "podman"},
		{"MCP_BRIDGE_RUNTIME", "Docker", func(s *settings.Settings) any { return s.Engine }, "docker"},
		{"MCP_BRIDGE_IMAGE", "python:3.14-slim", func(s *settings.Settings) any { return s.Image }, "python:3.14-slim"},
		{"MCP_BRIDGE_TIMEOUT", "45", func(s *settings.Settings) any { return s.Timeouts.Default }, 45 * time.Second},
		{"MCP_BRIDGE_TIMEOUT", "45s", func(s *settings.Settings) any { return s.Timeouts.Default }, 45 * time.Second},
		{"MCP_BRIDGE_MAX_TIMEOUT", "240s", func(s *settings.Settings) any { return s.Timeouts.Max }, 4 * time.Minute},
		{"MCP_BRIDGE_MEMORY", "512m", func(s *settings.Settings) any { return s.Limits.Memory }, int64(512 << 20)},
		{"MCP_BRIDGE_MEMORY", "2G", func(s *settings.Settings) any { return s.Limits.Memory }, int64(2 << 30)},
		{"MCP_BRIDGE_PIDS", "256", func(s *settings.Settings) any { return s.Limits.Processes }, 256},
		{"MCP_BRIDGE_CPUS", "1.5", func(s *settings.Settings) any { return s.Limits.CPUs }, 1.5},
		{"MCP_BRIDGE_CONTAINER_USER", "1000:1000", func(s *settings.Settings) any { return s.Container.User }, "1000:1000"},
		{"MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "300s", func(s *settings.Settings) any { return s.Container.IdleTimeout }, 5 * time.Minute},
		{"MCP_BRIDGE_STATE_DIR", "~/MCPs", func(s *settings.Settings) any { return s.StateDir }, "/home/u/MCPs"},
		{"MCP_BRIDGE_STATE_DIR", "here", func(s *settings.Settings) any { return s.StateDir }, "/work/dir/here"},
		{"MCP_BRIDGE_OUTPUT_MODE", "toon", func(s *settings.Settings) any { return s.Output.Mode }, "toon"},
		{"MCP_BRIDGE_LOG_LEVEL", "INFO", func(s *settings.Settings) any { return s.Log.Level }, slog.LevelInfo},
		{"MCP_BRIDGE_LOG_LEVEL", "WARNING", func(s *settings.Settings) any { return s.Log.Level }, slog.LevelWarn},
		{"MCP_BRIDGE_LOG_LEVEL", "CRITICAL", func(s *settings.Settings) any { return s.Log.Level }, slog.LevelError},
		{"MCP_BRIDGE_ALLOW_SELF_SERVER", "1", func(s *settings.Settings) any { return s.Servers.AllowSelf }, true},
		{"MCP_BRIDGE_ALLOW_SELF_SERVER", "yes", func(s *settings.Settings) any { return s.Servers.AllowSelf }, true},
		{"MCP_BRIDGE_ALLOW_SELF_SERVER", "True", func(s *settings.Settings) any { return s.Servers.AllowSelf }, true},
		{"MCP_BRIDGE_ALLOW_SELF_SERVER", "0", func(s *settings.Settings) any { return s.Servers.AllowSelf }, false},
		{"MCP_SERVERS_CONFIG", file, func(s *settings.Settings) any { return s.Servers.FallbackConfig }, file},
	}
	names := map[string]bool{}
	for _, tt := range tests {
		names[tt.name] = true
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			s := mustLoad(t, settings.Sources{Home: "/home/u", Dir: "/work/dir", Environ: map[string]string{tt.name: tt.value}})
			if got := tt.got(s); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	for _, e := range mustLoad(t, settings.Sources{}).Entries() {
		for _, name := range e.Variables {
			if strings.HasPrefix(name, "MCP_") && !names[name] {
				t.Errorf("%s is not in this test", name)
			}
		}
	}
	if len(names) != 14 {
		t.Errorf("%d variables, not thirteen and MCP_SERVERS_CONFIG", len(names))
	}
}

func TestEveryOwnVariableAndFlag(t *testing.T) {
	for _, e := range mustLoad(t, settings.Sources{Home: "/h"}).Entries() {
		var text string
		switch v := e.Value.(type) {
		case string:
			text = v
		case []string:
			text = strings.Join(v, ",")
		default:
			text = fmt.Sprint(v)
		}
		if text == "" {
			continue // nothing is set, and there is no value to repeat
		}
		if len(e.Variables) == 0 { // it is in the file alone
			flag := settings.Flag{Name: "--set", Key: e.Key, Value: text}
			if _, err := settings.Load(settings.Sources{Home: "/h", Flags: []settings.Flag{flag}}); err == nil || !strings.Contains(err.Error(), e.Key+" is only in the configuration file") {
				t.Errorf("--set %s=%s: got %v, want that only the file has it", e.Key, text, err)
			}
			continue
		}
		own := e.Variables[len(e.Variables)-1]
		s := mustLoad(t, settings.Sources{Home: "/h", Environ: map[string]string{own: text}})
		if got := s.Origin(e.Key); got.Name != own {
			t.Errorf("%s=%s: %s comes from %v", own, text, e.Key, got)
		}
		s = mustLoad(t, settings.Sources{Home: "/h", Flags: []settings.Flag{{Name: "--set " + e.Key, Key: e.Key, Value: text}}})
		if got := s.Origin(e.Key); got.Layer != settings.LayerFlag {
			t.Errorf("--set %s=%s: it comes from %v", e.Key, text, got)
		}
	}
}

func TestRelations(t *testing.T) {
	environ := func(kv ...string) settings.Sources {
		src := settings.Sources{Environ: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			src.Environ[kv[i]] = kv[i+1]
		}
		return src
	}
	// What was not set gives way.
	s := mustLoad(t, environ("MCP_BRIDGE_MAX_TIMEOUT", "20"))
	if s.Timeouts.Default != 20*time.Second {
		t.Errorf("default %v", s.Timeouts.Default)
	}
	s = mustLoad(t, environ("MCP_BRIDGE_MAX_TIMEOUT", "1h"))
	if s.Timeouts.WholeRun != time.Hour {
		t.Errorf("whole run %v", s.Timeouts.WholeRun)
	}
	// What was set does not.
	fails(t, environ("MCP_BRIDGE_TIMEOUT", "180"),
		"timeouts.default is 3m (MCP_BRIDGE_TIMEOUT), more than timeouts.max, which is 2m (default)", "MCP_BRIDGE_MAX_TIMEOUT or SALLYPORT_TIMEOUTS_MAX")
	fails(t, environ("SALLYPORT_TIMEOUTS_WHOLE_RUN", "60"), "timeouts.max is 2m (default), more than timeouts.wholeRun")
}

func TestProjectFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.yaml", "sallyport.yaml", ".sallyport.yaml", "config.yml", ".config/sallyport/config.yaml", ".sallyport/config.yaml"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("policy: {minIsolation: platform}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, home := range []string{"/nonexistent", ""} {
		s := mustLoad(t, settings.Sources{Home: home, Dir: dir})
		if s.Policy.MinIsolation != "wasm" {
			t.Errorf("home %q: a file of the working directory was read", home)
		}
	}
}

func TestNamedFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte("python: pypy3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := write(t, "python: python3.12\n")
	if s := mustLoad(t, settings.Sources{Home: home, Dir: dir, ConfigFile: "mine.yaml"}); s.Python != "pypy3" {
		t.Errorf("python %q", s.Python)
	}
	env := map[string]string{"SALLYPORT_CONFIG": filepath.Join(dir, "mine.yaml")}
	if s := mustLoad(t, settings.Sources{Home: home, Environ: env}); s.Python != "pypy3" {
		t.Errorf("python %q", s.Python)
	}
	env["SALLYPORT_CONFIG"] = "/nonexistent.yaml"
	fails(t, settings.Sources{Home: home, Environ: env}, "/nonexistent.yaml: there is no such file")
}
