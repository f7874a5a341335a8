package store

// permissions: on Windows, a file's mode says nothing about other users.
const permissions = false
