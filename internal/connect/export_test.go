package connect

// FindIn is Find with other folders for temporary files.
var FindIn = find

// Put writes a file that must have the expected content.
var Put = put
