package wire

// Methods of a [Call] that add packages to a running sandbox.
const (
	// MethodInstallPackages: params {"packages","target","installed"}; the result is
	// {"archive","packages","files","bytes"}.
	MethodInstallPackages = "install_packages"
	// MethodPackagesInstalled: params [PackagesInstalled]; the result is null. The
	// guest has added that archive, which an answer to MethodInstallPackages named.
	MethodPackagesInstalled = "packages_installed"
)

// PackagesInstalled are the params of MethodPackagesInstalled.
type PackagesInstalled struct {
	Archive string `json:"archive"`
}
