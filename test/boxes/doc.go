// Package boxes runs the executable where gVisor cannot run: in default containers of
// Podman and Docker, where user namespaces are switched off, and, by the script
// machine, on kernels in virtual machines. The script run gives the tests what they
// need.
package boxes
