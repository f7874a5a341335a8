// Package upgrade replaces this executable with another release of it.
//
// A release is a set of files in one place: an archive for each platform
// (sallyport_1.2.3_linux_amd64.tar.gz, .zip for Windows) with the executable at
// its top level, SHA256SUMS with the checksum of each, and SHA256SUMS.minisig,
// the prehashed minisign signature of SHA256SUMS. Its trusted comment is
// "sallyport 1.2.3": a signature of one release is worthless for another.
//
// The place is hostile. Nothing that it sends is used before the signature is
// verified with the key in this executable, except the version in the newest
// signature, which says where to look. Downloads, archives and their contents
// are limited in size. The running executable is replaced by one rename, after
// the new one has run.
package upgrade
