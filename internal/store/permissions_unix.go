//go:build !windows

package store

// permissions: a file's mode determines who may use it.
const permissions = true
