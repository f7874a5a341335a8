package connect

// FindIn is Find with other folders for temporary files.
var FindIn = find
