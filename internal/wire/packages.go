package wire

import "encoding/json"

// Methods of a [Call] that add packages to a running sandbox.
const (
	// MethodInstallPackages: params [InstallPackages], result [Packages].
	MethodInstallPackages = "install_packages"
	// MethodPackagePart: params [PackagePart], result [PackageData].
	MethodPackagePart = "package_part"
	// MethodPackagesInstalled: params [PackagesInstalled]; the result is null. The
	// guest has added that archive, which an answer to MethodInstallPackages named.
	MethodPackagesInstalled = "packages_installed"
	// MethodScriptHeader: params [ScriptHeader], result an array of requirements: what
	// the header of the code asks for (PEP 723). An error says that it cannot be
	// read, or that the code is for another Python.
	MethodScriptHeader = "script_header"
)

// ScriptHeader are the params of MethodScriptHeader.
type ScriptHeader struct {
	Version [2]int `json:"version"` // of the language in the sandbox: 3, 13
}

// InstallPackages asks for packages.
type InstallPackages struct {
	Packages []string `json:"packages"` // requirements
	// Target describes the sandbox's interpreter, Interpreter is its path, and Installed are the
	// packages that it has, with their versions.
	Target      json.RawMessage   `json:"target"`
	Interpreter string            `json:"interpreter"`
	Installed   map[string]string `json:"installed"`
}

// Package is one that is added.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Packages are what an archive adds. There is no archive where nothing is needed. Also
// are archives of other answers, which the guest may not have added yet, and without
// which this one's packages may be too few.
type Packages struct {
	Archive  string    `json:"archive,omitempty"`
	Packages []Package `json:"packages"`
	Bytes    int64     `json:"bytes,omitempty"`
	Also     []string  `json:"also,omitempty"`
}

// PackagePart names a part of an archive, which is a tar.
type PackagePart struct {
	Archive string `json:"archive"`
	Offset  int64  `json:"offset"`
}

// PackageData is a part of an archive, which has Bytes.
type PackageData struct {
	Data  []byte `json:"data"`
	Last  bool   `json:"last"`
	Bytes int64  `json:"bytes"`
}

// PackagesInstalled are the params of MethodPackagesInstalled.
type PackagesInstalled struct {
	Archive string `json:"archive"`
}
