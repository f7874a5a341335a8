package connect

// Put writes a file that must have the expected content.
var Put = put
