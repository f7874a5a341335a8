//go:build !linux

package app

import "time"

// sinceBoot returns how long the machine has run, sleep included; 0 where that is
// not known.
func sinceBoot() time.Duration { return 0 }
