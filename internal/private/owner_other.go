//go:build !unix

package private

import "io/fs"

// Elsewhere access lists decide, and a user's own folders, temporary ones too,
// are closed to others by default.

func isOwn(fs.FileInfo) bool { return true }

func trusted(_, _ fs.FileInfo) bool { return true }

func writable(fs.FileInfo) bool { return false }

func sticky(fs.FileInfo) bool { return false }

func exposes(fs.FileMode) bool { return false }

func describe(path string, _ fs.FileInfo) string { return path }
