package wire

// Methods of a [Call] that add packages to a running sandbox.
const (
	// MethodPackagesInstalled: params [PackagesInstalled]; the result is null. The
	// guest has added that archive.
	MethodPackagesInstalled = "packages_installed"
)

// PackagesInstalled are the params of MethodPackagesInstalled.
type PackagesInstalled struct {
	Archive string `json:"archive"`
}
