package upstream

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// inherited lists the variables of our own environment that every server gets;
// a name that ends in * stands for all with that prefix.
//
// The rule: what a program needs to find its home, its language, its tools and
// the network, like the official SDKs and a little more, but no keys. The
// agent's own API keys, cloud credentials and agents' sockets are in our
// environment, and a server gets them only if its definition asks: "env": {"X":
// "${X}"}. Addresses of proxies and package registries may contain a password;
// without them neither npx nor uvx starts behind a company's firewall.
//
// Every one of them is part of a server's identity: clients in which one differs
// have servers of their own. What differs between two terminals of one user is
// therefore not inherited: see ofTerminal.
var inherited = []string{
	"HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "LANGUAGE", "LC_*", "TZ",
	"TMPDIR", "TMP", "TEMP", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	"npm_config_registry", "npm_config_cache", "npm_config_prefix", "npm_config_userconfig", "npm_config_cafile", "npm_config_offline", "npm_config_prefer_offline",
	"NPM_CONFIG_REGISTRY", "NPM_CONFIG_CACHE", "NPM_CONFIG_PREFIX", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_CAFILE", "NPM_CONFIG_OFFLINE", "NPM_CONFIG_PREFER_OFFLINE",
	"NODE_PATH", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "COREPACK_HOME",
	"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_CACHE_DIR", "PIP_CONFIG_FILE",
	"UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "UV_OFFLINE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
	"PYENV_ROOT", "PYENV_VERSION", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "CONDA_PREFIX", "JAVA_HOME", "GOPATH", "CARGO_HOME", "RUSTUP_HOME",
	"NIX_PROFILES", "NIX_SSL_CERT_FILE", "HOMEBREW_PREFIX",
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "CONTAINER_HOST",
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "__CF_USER_TEXT_ENCODING",
	// Whoever allows Sallyport as a server allows it to run.
	"MCP_BRIDGE_ALLOW_SELF_SERVER", "SALLYPORT_SERVERS_ALLOW_SELF",
}

// ofTerminal lists what inherited names but a server does not get, unless the
// settings name it: it belongs to one terminal or login.
var ofTerminal = []string{
	"XDG_SESSION_ID", "XDG_SESSION_PATH", "XDG_SEAT", "XDG_SEAT_PATH", "XDG_VTNR", "XDG_ACTIVATION_TOKEN", "XDG_MENU_PREFIX",
}

// inheritedWindows is added on Windows, where names ignore case.
var inheritedWindows = []string{
	"APPDATA", "LOCALAPPDATA", "HOMEDRIVE", "HOMEPATH", "USERNAME", "USERPROFILE", "USERDOMAIN", "COMPUTERNAME", "PUBLIC", "ALLUSERSPROFILE",
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
	"PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PROGRAMDATA", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "PSMODULEPATH",
}

// childEnvironment selects from our environment, adds the variables of the
// definition, and tells the child how deep it is nested.
func childEnvironment(ours, more []string, own map[string]string) []string {
	chosen := make(map[string]string, len(own)+32)
	patterns := inherited
	if runtime.GOOS == "windows" {
		patterns = append(slices.Clone(inherited), inheritedWindows...)
	} else {
		chosen["TERM"] = "dumb" // it has none
	}
	depth := 0
	for _, entry := range ours {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue // Windows has entries such as =C:=C:\
		}
		if name == definitions.DepthVariable {
			depth = definitions.Depth(func(string) (string, bool) { return value, true })
			continue
		}
		// A function that bash exported is code, not a setting.
		usual := matches(patterns, name) && !slices.Contains(ofTerminal, name)
		if (usual || matches(more, name)) && !strings.HasPrefix(value, "()") {
			chosen[name] = value
		}
	}
	for name, value := range own {
		if runtime.GOOS == "windows" {
			for have := range chosen {
				if strings.EqualFold(have, name) {
					delete(chosen, have)
				}
			}
		}
		chosen[name] = value
	}
	chosen[definitions.DepthVariable] = strconv.Itoa(depth + 1)
	out := make([]string, 0, len(chosen))
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		out = append(out, name+"="+chosen[name])
	}
	return out
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		prefix, any := strings.CutSuffix(p, "*")
		switch {
		case runtime.GOOS == "windows":
			if strings.EqualFold(p, name) || any && len(name) >= len(prefix) && strings.EqualFold(prefix, name[:len(prefix)]) {
				return true
			}
		case p == name, any && strings.HasPrefix(name, prefix):
			return true
		}
	}
	return false
}
