package settings

import (
	"fmt"
	"strings"
)

// Ignored is a value that a variable or a flag gives a setting, and that does not
// count: it demands less than the configuration file, or the default.
type Ignored struct {
	Origin Origin `json:"origin"`
	Value  string `json:"value"`
}

// came notes that a variable or a flag has set the value, which was before. If it
// demands too little, the setting stays what it was.
func (s *setting) came(from Origin, before string) {
	if s.strength != nil && s.strength() < s.least {
		s.ignored = append(s.ignored, Ignored{from, s.value.text()})
		if err := s.value.set(before, place{}); err != nil {
			panic("settings: " + s.key + " cannot be set to its own value: " + err.Error()) // a mistake in declare, which the tests run
		}
		return
	}
	s.origin = from
}

// Warnings says what variables and flags say that does not count, and what to do.
func (s *Settings) Warnings() []string {
	var out []string
	for _, e := range s.entries {
		for _, i := range e.ignored {
			value := i.Value
			if strings.ContainsAny(value, " <>*~!") {
				value = `"` + value + `"` // for a shell
			}
			out = append(out, fmt.Sprintf("%s: %s: %s is ignored, and %s (%s) holds: variables and flags can make it stricter, not weaker; if you want that, 'sallyport config set %[2]s %[6]s' writes it into the configuration file", i.Origin, e.key, i.Value, e.value.text(), e.origin, value))
		}
	}
	return out
}
