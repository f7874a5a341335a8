package main

import "testing"

// TestTablesAreFresh: what is in the program is what the files say.
func TestTablesAreFresh(t *testing.T) {
	if err := run("../../data/carbon", "../../internal/usage/carbon/tables", true); err != nil {
		t.Error(err)
	}
}
