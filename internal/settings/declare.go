package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// DefaultUser is the user that code runs as by default.
const DefaultUser = "65534:65534"

// A setting is one declaration, bound to the field that it fills.
type setting struct {
	key    string
	value  value
	legacy string // the first bridge's variable, if it had one
	// initial is the default as an environment variable would give it. If it is
	// empty, the setting is unset, or defaults describes the default.
	initial  string
	defaults string // describes the default if it is not a value
	fileOnly bool   // no variable or flag sets it
	help     string
	origin   Origin
	// strength, if not nil, is how much the field's value demands. Variables and
	// flags, which come with a client's own configuration, can demand more than the
	// configuration file or the default, and not less.
	strength func() int64
	least    int64     // of the file, or the default
	ignored  []Ignored // variables and flags that demanded less
}

// variable returns the setting's own environment variable: SALLYPORT_ and the
// key in capitals.
func (s *setting) variable() string {
	var b strings.Builder
	b.WriteString(ownPrefix)
	for _, r := range s.key {
		switch {
		case r == '.':
			b.WriteByte('_')
		case unicode.IsUpper(r):
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

// variables returns all environment variables of the setting. The last one
// wins.
func (s *setting) variables() []string {
	if s.fileOnly {
		return []string{}
	}
	if s.legacy == "" {
		return []string{s.variable()}
	}
	return []string{s.legacy, s.variable()}
}

func (s *setting) section() string {
	if i := strings.LastIndexByte(s.key, '.'); i >= 0 {
		return s.key[:i]
	}
	return ""
}

// assign sets the value from text, which is not empty. Its error quotes it.
func (s *setting) assign(text string, at place) error {
	err := s.value.set(text, at)
	if _, list := s.value.(lister); err == nil || list {
		return err // a list's error quotes the wrong part
	}
	if _, hidden := s.value.(*secretValue); hidden {
		return err
	}
	return fmt.Errorf("%s: %w", quote(text), err)
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// enforcement lists the ways to enforce a limit, weakest first.
var enforcement = []string{"absent", "soft", "hard"}

// declare lists every setting, bound to s, in the order of the documentation.
func declare(s *Settings) []*setting {
	return slices.Concat(
		declareWhole(s), declareTimeouts(&s.Timeouts), declareLimits(&s.Limits), declareFiles(&s.Files), declareArtifacts(&s.Artifacts),
		declarePolicy(&s.Policy), declarePackages(&s.Policy), declareRemote(&s.Policy), declareExecutions(&s.Policy), declareAudit(&s.Audit), declareApprovals(&s.Approvals), declareRuns(&s.Runs), declareWorker(&s.Worker), declareDeploy(&s.Deploy), declareKaggle(&s.Kaggle), declareServers(&s.Servers), declareCatalog(&s.Catalog), declareCache(&s.Cache), declareImages(&s.Images), declareKept(s), declareRunPod(&s.RunPod, &s.Tools), declareRest(s), declareCarbon(&s.Carbon),
	)
}

func declareWhole(s *Settings) []*setting {
	return []*setting{
		{key: "engine", value: choice(&s.Engine, EngineAuto, EngineGVisor, EnginePodman, EngineDocker, EngineWasm),
			legacy: "MCP_BRIDGE_RUNTIME", initial: EngineAuto,
			help: "What runs sandboxes. `auto` chooses, of those that can run here and meet the policy, the one with the strongest isolation, and of equal ones the first of these: the embedded gVisor, `wasm`, `podman`, `docker`. Podman and Docker count as containers unless `container.runtime` names another runtime. `wasm` is CPython in WebAssembly: it needs nothing of the machine and runs pure Python only. Containers share the host's kernel, so with the default policy (`policy.minIsolation`) they are refused; an engine named here is never replaced by another. `sallyport doctor` explains the choice."},
		declareBatchServices(s),
		{key: "image", value: text(&s.Image),
			legacy: "MCP_BRIDGE_IMAGE", defaults: "the host's own Python",
			help: "OCI image to run code in, such as `python:3.13-slim`. It needs CPython 3.9 or newer and nothing else; none of its own programs are started. Every engine gets it as `images.pull` says; the embedded gVisor needs no container engine for it (`sallyport image`). Podman and Docker run `docker.io/library/python:3.13-slim-bookworm` if none is set."},
		{key: "python", value: program(&s.Python), initial: "python3",
			help: "Interpreter that sandboxes run: a name in the search path, or an absolute path. CPython 3.9 or newer. The interpreter of a virtual environment brings that environment's packages."},
		{key: "environment", value: text(&s.Environment), defaults: "none",
			help: "Environment of sessions that choose none: one of `environments`, or `host` for `image` or `python`."},
		{key: "stateDir", value: folderPath(&s.StateDir),
			legacy: "MCP_BRIDGE_STATE_DIR", defaults: "`$XDG_STATE_HOME/sallyport`, or `~/.local/state/sallyport`",
			help: "Folder for everything that Sallyport keeps after it exits."},
	}
}

func declareTimeouts(t *Timeouts) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "timeouts.default", value: duration(&t.Default, time.Second, day),
			legacy: "MCP_BRIDGE_TIMEOUT", initial: "30s",
			help: "Limit on the code's own time if a call does not set one; waiting for tools is not counted. If this is not set, it is at most `timeouts.max`."},
		{key: "timeouts.max", value: duration(&t.Max, time.Second, day),
			legacy: "MCP_BRIDGE_MAX_TIMEOUT", initial: "120s",
			help: "The longest limit that a call can ask for."},
		{key: "timeouts.wholeRun", value: duration(&t.WholeRun, time.Second, day), initial: "10m",
			help: "Limit on a call as a whole, waiting for tools included. If this is not set, it is at least `timeouts.max`."},
		{key: "timeouts.grace", value: duration(&t.Grace, 100*time.Millisecond, time.Minute), initial: "2s",
			help: "How long interrupted code may take to end before its sandbox is destroyed, and its variables with it."},
		{key: "timeouts.start", value: duration(&t.Start, time.Second, 10*time.Minute), initial: "60s",
			help: "How long a sandbox may take to start."},
	}
}

func declareLimits(l *Limits) []*setting {
	return []*setting{
		{key: "limits.memory", value: size(&l.Memory, 64*mib, 1024*gib),
			legacy: "MCP_BRIDGE_MEMORY", initial: "512m",
			help: "Memory of all processes of a sandbox together."},
		{key: "limits.processes", value: integer(&l.Processes, 8, 1<<15),
			legacy: "MCP_BRIDGE_PIDS", initial: "128",
			help: "Processes and threads of a sandbox together."},
		{key: "limits.cpus", value: number(&l.CPUs, 0.01, 1024).or("unlimited", 0),
			legacy: "MCP_BRIDGE_CPUS", initial: "unlimited",
			help: "Cores that a sandbox may use; fractions are allowed. A limit needs a control group; where none can be created, sandboxes with a limit do not start."},
		{key: "limits.workspace", value: size(&l.Workspace, mib, 1024*gib), initial: "128m",
			help: "Size of `/workspace`, which is in memory."},
		{key: "limits.tmp", value: size(&l.Tmp, mib, 1024*gib), initial: "64m",
			help: "Size of `/tmp` and of `/dev/shm`, which are in memory."},
		{key: "limits.packages", value: size(&l.Packages, mib, 1024*gib), initial: "1g",
			help: "Size of `/packages`, which is in memory and holds what code adds with `runtime.install_packages`."},
		{key: "limits.openFiles", value: integer(&l.OpenFiles, 64, 1<<20), initial: "1024",
			help: "Open files of one process."},
		{key: "limits.output", value: size(&l.Output, 1<<10, 8*mib), initial: "1m",
			help: "How much output of one call is kept: its head and its tail. Less is kept of many short lines or control characters, which take more memory."},
	}
}

// rank returns the strength of a word among these, the weakest first.
func rank(field *string, words ...string) func() int64 {
	return func() int64 { return int64(slices.Index(words, *field)) }
}

// atMost returns a strength that is less where a number is greater.
func atMost(field *int) func() int64 { return func() int64 { return -int64(*field) } }

func declarePolicy(p *Policy) []*setting {
	require := func(name string, field *string, initial, what string) *setting {
		return &setting{key: "policy.require." + name, value: choice(field, enforcement...), initial: initial,
			help: "The weakest accepted enforcement of the limit on " + what + ": by a kernel (`hard`), by a watcher (`soft`), or none."}
	}
	return []*setting{
		{key: "policy.minIsolation", value: choice(&p.MinIsolation, "platform", "container", "wasm", "kernel"), initial: "wasm",
			help: "The weakest isolation that code may run with: a kernel of the sandbox's own, WebAssembly in a process that the host's kernel confines, a container on the host's kernel, or a machine that is a sandbox already. `sallyport doctor` shows what this machine offers."},
		require("memory", &p.Require.Memory, "soft", "memory"),
		require("processes", &p.Require.Processes, "soft", "processes"),
		require("disk", &p.Require.Disk, "hard", "`/workspace` and `/tmp`"),
		require("openFiles", &p.Require.OpenFiles, "soft", "open files"),
		require("cpu", &p.Require.CPU, "absent", "cores"),
		{key: "policy.servers", value: list(&p.Servers, isServerPattern, "names of servers; `*` stands for any characters"), initial: "*",
			help: "MCP servers that code may be granted. An empty list grants none."},
		{key: "policy.requests", value: list(&p.Requests, isRequestPattern, "command lines or URLs; `*` stands for letters, digits, dots, dashes and underscores, and `...` at the end for further words"), defaults: "none",
			help: "What code may add by itself with `runtime.request_server`, such as `npx -y @modelcontextprotocol/server-*` or `https://*.example.com/mcp`. Everything else waits for `sallyport servers approve`, and so does every server with variables of its own."},
		{key: ProfileKey, value: choice(&p.Profile, Profiles...), initial: Profiles[0], strength: rank(&p.Profile, Profiles...),
			help: "What happens to calls that no rule of `policy.tools` is about. `open`: they are allowed. `careful`: tools that their server declares read-only, resources and prompts are allowed, and everything else asks. `locked`: they are denied. Variables and flags can only make it stricter than the file. `policy.tools` is a list of rules in this file, and can be set nowhere else ([Rules for calls](GUIDE.md#rules-for-calls))."},
	}
}

func declareExecutions(p *Policy) []*setting {
	all, each := &p.Executions, &p.Executions.PerClient
	const most = 100_000
	return []*setting{
		{key: "policy.executions.running", value: integer(&all.Running, 1, 256).or("auto", 0), initial: "auto",
			help: "Executions that run code at a time, of all clients together; further ones wait for their turn. `auto`: `sessions.maxRunning`, which is also the most that can run."},
		{key: "policy.executions.queued", value: integer(&all.Queued, 1, most), initial: "1024",
			help: "Executions that may wait besides those that run, of all clients together; further ones are refused at once. A client that has none may always begin one."},
		{key: "policy.executions.perClient.running", value: integer(&each.Running, 1, 256).or("auto", 0), initial: "auto",
			help: "Executions of one client that run code at a time. `auto`: three quarters of those of all clients; the rest is free for others, however long the code of this one takes."},
		{key: "policy.executions.perClient.queued", value: integer(&each.Queued, 1, most), initial: "256",
			help: "Executions of one client that may wait besides those that run, for their turn, for a session or for a batch service; further ones are refused at once."},
	}
}

func declareServers(s *Servers) []*setting {
	return []*setting{
		{key: "servers.config", value: files(&s.Config), defaults: "none",
			help: "Files of MCP server definitions, which take precedence over those in `~/MCPs/*.json`: if a name is defined more than once, the first definition counts."},
		{key: "servers.fallbackConfig", value: file(&s.FallbackConfig),
			legacy: "MCP_SERVERS_CONFIG", defaults: "none",
			help: "A file of MCP server definitions that is consulted last."},
		{key: "servers.sources", value: list(&s.Sources, isSource, "`*` for all, or of `"+strings.Join(ServerSources(), "`, `")+"`"), initial: "*",
			help: "Where to look for MCP servers: `mcps` is `~/MCPs/*.json`, `mcp` is `~/.config/mcp/servers/*.json`, `project` is the files of all clients in the working directory, and each other word is the files of that client. Files named in `servers.config` and `servers.fallbackConfig` are always read."},
		{key: "servers.allowSelf", value: boolean(&s.AllowSelf),
			legacy: "MCP_BRIDGE_ALLOW_SELF_SERVER", initial: "false",
			help: "Also take definitions that start Sallyport again."},
		{key: "servers.inherit", value: list(&s.Inherit, isVariablePattern, "names of environment variables, also as `PREFIX*`"), defaults: "none",
			help: "Variables of Sallyport's own environment that every server gets in addition to the usual ones (`PATH`, `HOME`, locale, proxies and the like). Give keys and tokens to one server, in its definition, instead."},
		{key: "servers.startTimeout", value: duration(&s.StartTimeout, time.Second, time.Hour), initial: "60s",
			help: "How long a server may take to start; `npx` and `uvx` may have to download it."},
		{key: "servers.callTimeout", value: duration(&s.CallTimeout, time.Second, 24*time.Hour).or("unlimited", -1), initial: "10m",
			help: "How long one tool call may take."},
		{key: "servers.idleStop", value: duration(&s.IdleStop, time.Second, 7*24*time.Hour).or("never", 0), initial: "never",
			help: "Stop a server that has not been used for this long. The next use starts it again."},
		{key: "servers.connections", value: list(&s.Connections, isConnections, "`NAME=N`; in NAME, `*` stands for any characters; N is 1 to 64"), defaults: "one each",
			help: "Servers that may have several processes or connections, for those that work on one call at a time. Another one is started when all are busy. Do not use this for servers that remember something between calls: any of the processes may get a call."},
		{key: "servers.sharing", value: list(&s.Sharing, isSharing, "`NAME=HOW`; in NAME, `*` stands for any characters; HOW is `session`, `client` or `all`, also alone"), defaults: "`all`; `client` for servers that remember what a client does",
			help: "For whom one server runs: for one `session`, for one `client`, or for `all` clients whose definitions, directories and variables would start it in the same way. The first entry that matches a server's name decides, then `sharing` in its definition; then browsers, shells, debuggers and others that are known to remember what a client does get `client`; then an entry without a name decides for the rest. `sallyport servers show NAME` says what applies."},
		{key: "servers.may", value: list(&s.May, isMay, "`NAME=WHAT`; in NAME, `*` stands for any characters; WHAT is `elicit`, `sample` or `none`, also alone"), initial: MayElicit, fileOnly: true,
			help: "What servers may ask while they work on a call. `elicit`: ask you a question, with a form or with a web page to open; you see which server asks, and can decline. `sample`: have the agent's client run its model for them, which costs your tokens and shows the model the server's text. `none`: nothing. The entries that match a server's name decide for it, all together; then the entries without a name, or `elicit` if there is none. `[elicit, github=elicit, github=sample]` lets github do both. Where `none` is among the entries that decide, it wins; an empty list is `none` for all. A server that may ask something may also ask for the client's roots. Everything but `elicit` needs a client that supports it. It is in the configuration file alone: variables and flags come with a client or a project, and a project must not let its servers ask more."},
		{key: "servers.sampling.calls", value: integer(&s.Sampling.Calls, 0, 1000), initial: "10", strength: atMost(&s.Sampling.Calls),
			help: "How often all servers together may have the model run in one execution, if `servers.may` lets them. Variables and flags can only make it less than the file says."},
		{key: "servers.sampling.tokens", value: integer(&s.Sampling.Tokens, 1, 10_000_000), initial: "20000", strength: atMost(&s.Sampling.Tokens),
			help: "How many tokens the model may write for all servers together in one execution. A request for more than is left gets what is left. What the model reads is not counted. Variables and flags can only make it less than the file says."},
		{key: "servers.plainHttp", value: list(&s.PlainHTTP, isHostPattern, "names or addresses of hosts; `*` stands for any characters"), defaults: "none",
			help: "Hosts to which plain `http://` is allowed, in addition to this machine. Everything on the way there is readable, tokens too."},
		{key: "servers.clientMetadata", value: matching(&s.ClientMetadata, isDocumentURL, "an https address with a path"), defaults: "none",
			help: "Address of a document about this program as an OAuth client (a Client ID Metadata Document), for authorization servers that read one: they get this address in place of a registration. The document has to list `http://127.0.0.1/callback` among its redirect addresses."},
		{key: "servers.stopGrace", value: duration(&s.StopGrace, 100*time.Millisecond, time.Minute), initial: "2s",
			help: "How long each step of stopping a server waits: closing its input, SIGTERM, SIGKILL."},
		{key: "servers.maxMessage", value: size(&s.MaxMessage, mib, gib), initial: "256m",
			help: "The largest message that a server may send."},
		{key: "servers.maxCalls", value: integer(&s.MaxCalls, 1, 1<<14), initial: "128",
			help: "How many calls of one execution servers work on at a time; further calls wait."},
		{key: "servers.changedTools", value: choice(&s.ChangedTools, ChangedNote, ChangedRefuse), initial: ChangedNote,
			help: "What happens when a server changes the description of a tool, prompt, resource or itself. `note`: results report it. `refuse`: what changed cannot be called or read, and code sees the first description, until `sallyport tools approve` accepts the new one; this includes new tools, prompts and resources of a known server."},
	}
}

func declareCatalog(c *Catalog) []*setting {
	return []*setting{
		{key: "catalog.refresh", value: choice(&c.Refresh, "auto", "manual", "off"), initial: "auto",
			help: "When servers are started only to list their tools, for searches: in the background while no code runs (`auto`), only when a search or a question needs a server whose tools are not known (`manual`; `auto` does this, too), or never (`off`). The list of a server that runs anyway is always kept."},
		{key: "catalog.maxAge", value: duration(&c.MaxAge, time.Minute, 365*24*time.Hour), initial: "24h",
			help: "Age at which the list of a server's tools is refreshed in the background."},
	}
}

func declareCache(c *Cache) []*setting {
	return []*setting{
		{key: "cache.entries", value: integer(&c.Entries, 1, 1_000_000), initial: "4096",
			help: "Results that are kept. Where there are more, those that were not used for longest go."},
		{key: "cache.bytes", value: size(&c.Bytes, mib, 16*gib), initial: "64m",
			help: "Memory for results that are kept. One that takes more than a quarter of it is not kept."},
		{key: "cache.disk", value: boolean(&c.Disk), initial: "false",
			help: "Whether results of servers that all clients share are also kept in the folder `results` of the state folder, readable by you alone, and used by the next Sallyport. They go when they expire."},
	}
}

func declareImages(i *Images) []*setting {
	return []*setting{
		{key: "images.pull", value: choice(&i.Pull, PullMissing, PullAlways, PullNever), initial: PullMissing,
			help: "When an engine asks a registry for the image of the setting `image`: if it is not on this machine (`missing`), once each time Sallyport starts (`always`), or never, so that it must be pulled or loaded first (`never`). A tag that was pulled stands for that image until it is pulled again."},
		{key: "images.plainHttp", value: list(&i.PlainHTTP, isHostPattern, "names or addresses of hosts; `*` stands for any characters"), defaults: "none",
			help: "Registries that may be used without TLS, in addition to those on this machine. Credentials are readable on the way there."},
		{key: "images.maxSize", value: size(&i.MaxSize, mib, 1024*gib), initial: "32g",
			help: "Disk space for the files of one image, unpacked. Its layers, or the contents of its archive, may take as much again while it is pulled, loaded or built. An image or archive that exceeds this is refused, and everything written is removed. All images of one archive share the limit."},
	}
}

func declareKept(s *Settings) []*setting {
	m, t := &s.Memory, &s.Saved
	return []*setting{
		{key: "memories.enabled", value: boolean(&m.Enabled), initial: "true",
			help: "Whether code can keep values for later sessions (`save_memory` and the like). All sessions share them."},
		{key: "memories.maxValue", value: size(&m.MaxValue, 1<<10, 24*mib), initial: "4m",
			help: "The largest value, in bytes of JSON."},
		{key: "memories.maxKeys", value: integer(&m.MaxKeys, 1, 1<<17), initial: "10000",
			help: "How many values are kept."},
		{key: "memories.maxTotal", value: size(&m.MaxTotal, mib, 64*gib), initial: "256m",
			help: "Disk space for all values together."},

		{key: "savedTools.enabled", value: boolean(&t.Enabled), initial: "true",
			help: "Whether code can save functions for later sessions (`save_tool`), and use them. All sessions share them; they run in sandboxes only."},
		{key: "savedTools.maxTools", value: integer(&t.MaxTools, 1, 10000), initial: "1000",
			help: "The most functions that are kept."},
		{key: "savedTools.versions", value: integer(&t.Versions, 1, 100), initial: "20",
			help: "Versions of one function that are kept; the oldest are dropped."},
	}
}

func declareRest(s *Settings) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "sessions.backgroundCpu", value: number(&s.Sessions.BackgroundCPU, 0.001, 1024).or("unlimited", -1), initial: "0.1",
			help: "Cores that code may use between calls, for what it left running. A sandbox that uses more is paused until the next call."},
		{key: "sessions.snapshots", value: choice(&s.Sessions.Snapshots, SnapshotsAuto, SnapshotsOff), initial: SnapshotsAuto,
			help: "Restore new sandboxes from a prepared snapshot, which is faster than starting them. The snapshot is kept in the state directory, and created in the background if there is none."},
		{key: "sessions.preload", value: list(&s.Sessions.Preload, isModule, "names of Python modules"), defaults: "none",
			help: "Modules that new sandboxes have already imported. They are in the prepared snapshot, and so in the memory of every sandbox; `numpy` and `pandas` are worth it if most code uses them."},
		{key: "sessions.pool", value: integer(&s.Sessions.Pool, 0, 64).or("auto", PoolAuto), initial: "0",
			help: "Fresh sandboxes kept ready for new sessions; each takes about 50 MB. `auto` keeps one for a few minutes after a session was opened."},
		{key: "sessions.idle", value: duration(&s.Sessions.Idle, time.Second, 30*day).or("never", 0), initial: "15m",
			help: "Suspend a session to disk after it has not been used for this long: its memory is freed, and the next call resumes it with all its variables."},
		{key: "sessions.keep", value: duration(&s.Sessions.Keep, time.Minute, 3650*day).or("forever", 0), initial: "168h",
			help: "How long a suspended named session is kept."},
		{key: "sessions.maxRunning", value: integer(&s.Sessions.MaxRunning, 1, 256), initial: "16",
			help: "Sandboxes of one Sallyport at a time. For one more, a session that runs no code is suspended: of the client that has most sandboxes, the one that has been idle longest."},
		{key: "sessions.maxDisk", value: size(&s.Sessions.MaxDisk, 16*mib, 1024*gib), initial: "4g",
			help: "Disk space for all suspended sessions together. A session that is being written counts uncompressed, with up to the memory of its sandbox. Those suspended longest are removed first; their next use reports it. A session that does not fit is not suspended."},
		{key: "sessions.maxNamed", value: integer(&s.Sessions.MaxNamed, 1, 4096), initial: "256",
			help: "Named sessions of one client at a time, running or suspended. For one more, one must be removed (`sallyport sessions rm`)."},
		{key: "sessions.pack", value: boolean(&s.Sessions.Pack), initial: "true",
			help: "Compress suspended sessions: they take a third to three quarters of the space, and suspending takes a little longer."},
		{key: "sessions.logs", value: size(&s.Sessions.Logs, mib, gib).or("off", 0), initial: "16m",
			help: "How much of each session's code and output is kept on disk, for `sallyport sessions logs` and `export`, for as long as the session lives. The oldest is dropped first."},

		{key: "container.user", value: matching(&s.Container.User, isUser, "a uid, or uid:gid"),
			legacy: "MCP_BRIDGE_CONTAINER_USER", initial: DefaultUser,
			help: "The user that code runs as in a container. The embedded gVisor supports only the default, and is not used with any other."},
		{key: "container.runtime", value: matching(&s.Container.Runtime, isRuntime, "the name of an OCI runtime, or the absolute path of one"), defaults: "the engine's own choice",
			help: "OCI runtime of Podman and Docker, such as `runc`, `runsc` or `kata`. Isolation counts as `kernel` if a container turns out to have a kernel of its own."},
		{key: "container.userNamespace", value: choice(&s.Container.UserNamespace, "auto", "nomap", "keep-id"), defaults: "the engine's own choice",
			help: "Podman's option `--userns`: `auto` gives each container users of its own, if the machine has subordinate uids."},
		{key: "container.startMachine", value: boolean(&s.Container.StartMachine), initial: "false",
			help: "Start Podman's virtual machine (macOS, Windows) if it is not running when code is to run. It is never created or changed."},
		{key: "container.idleTimeout", value: duration(&s.Container.IdleTimeout, time.Second, 7*24*time.Hour).or("never", 0),
			legacy: "MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", initial: "300s",
			help: "When to stop Podman's virtual machine, if Sallyport started it and no container has been used for this long. It is also stopped when the program ends."},

		{key: "hub.enabled", value: boolean(&s.Hub.Enabled), initial: "true",
			help: "All clients share one process, the hub, which starts each server once. `false`: each client has a process of its own, as with `sallyport serve --standalone`."},
		{key: "hub.idle", value: duration(&s.Hub.Idle, time.Second, 30*day).or("never", 0), initial: "10m",
			help: "When the hub ends after its last client has gone and nothing runs. Named sessions are suspended to disk."},

		{key: "answer.within", value: duration(&s.Answer.Within, time.Second, 24*time.Hour).or("never", 0), initial: "50s",
			help: "How long a call of `run_python` waits for its code. After that it is answered with what the code has written so far and the status `running`; the code goes on, and a call with empty code on the same session waits for the rest. Many clients give up on a call after 60 s. Clients that are known to wait longer get longer. `never` waits for the end."},
		{key: "answer.tokens", value: integer(&s.Answer.Tokens, 1000, 10_000_000).or("unlimited", 0), initial: "10000",
			help: "How many tokens one answer has at most, as a model counts them: text and structured content together, pictures apart. They are estimated; models of OpenAI (o200k_base) count at most about a tenth more, and mostly fewer. Of longer output an answer has the beginning and the end, and says where all of it is: code reads it with `runtime.output(-1)`, a client as a resource, people with `sallyport sessions logs`. `limits.output` bounds what is kept in memory for an answer."},
		{key: "output.structured", value: choice(&s.Output.Structured, "auto", "always", "never"), initial: "auto",
			help: "Which clients get structured content besides text content. The text is complete in any case. `auto`: clients that are known to give the text to their model also get, as structured content, what matters to programs alone: status, exit code, servers, session, files, times; all others get the text alone, because many give their model structured content in place of the text (Claude Code, pydantic-ai, Mastra). `always`: for programs that read results; all clients get both, each complete, with standard output and error as lists of lines, and each within `answer.tokens`. `never`: all get the text alone."},
		{key: "output.mode", value: choice(&s.Output.Mode, OutputCompact, OutputTOON),
			legacy: "MCP_BRIDGE_OUTPUT_MODE", initial: OutputCompact,
			help: "Format of results: plain text, or a TOON block with the whole result."},
		{key: "output.fold", value: boolean(&s.Output.Fold), initial: "true",
			help: "Fold output before a model reads it: a progress line becomes its last state, colours and other control sequences go, repeated lines are counted. The result says what is missing; code reads the raw output with `runtime.output(-1)`. What `sallyport run` prints is never folded."},
		{key: "output.usage", value: boolean(&s.Output.Usage), initial: "false",
			help: "Report in every result what it used: processor time, energy, emissions. It costs each call a millisecond."},

		{key: "metrics.listen", value: metricsAddress(&s.Metrics.Listen), defaults: "off",
			help: "Address at which Prometheus reads metrics, at `/metrics`: a port, which is then open to this machine alone, or HOST:PORT. Name a host only if others may read which servers and tools are used. Of several Sallyports, the first one has the port. `sallyport stats` shows the same and needs no port."},
		{key: "traces.endpoint", value: matching(&s.Traces.Endpoint, isServiceURL, "an https address, or an http address of this machine"), defaults: "off",
			help: "OpenTelemetry collector that gets a trace of each execution over OTLP/HTTP, such as `http://127.0.0.1:4318`. Spans name servers and tools, and never have code, arguments or results. A process without a hub also takes the standard `OTEL_*` variables; the hub, which serves many clients, takes none of theirs."},

		{key: "log.level", value: level(&s.Log.Level),
			legacy: "MCP_BRIDGE_LOG_LEVEL", initial: "warn",
			help: "The least level of log lines, which go to standard error."},
		{key: "log.format", value: choice(&s.Log.Format, "auto", "text", "json"), initial: "auto",
			help: "Form of log lines. `auto` is `text` for serve and worker, and plain messages for the commands that people type."},
		{key: "debug.gvisor", value: folderPath(&s.Debug.GVisor), defaults: "none",
			help: "Folder for gVisor's own debug logs, which are large."},
	}
}
