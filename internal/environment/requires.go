package environment

import (
	"fmt"
	"strconv"
	"strings"
)

// Accepts reports whether a specifier of PEP 440, such as ">=3.11,<4", accepts a
// version of Python of which only the first two parts are known: a specifier that
// depends on the third one accepts it.
func Accepts(specifier string, major, minor int) (bool, error) {
	if len(specifier) > 1<<10 {
		return false, fmt.Errorf("requires-python has more than %d bytes", 1<<10)
	}
	ok := true
	for clause := range strings.SplitSeq(specifier, ",") {
		if clause = strings.TrimSpace(clause); clause == "" {
			continue
		}
		fits, err := accepts(clause, major, minor)
		if err != nil {
			return false, err
		}
		ok = ok && fits
	}
	return ok, nil
}

func accepts(clause string, major, minor int) (bool, error) {
	wrong := fmt.Errorf("requires-python: %.100q is not a version specifier such as >=3.11", clause)
	version := strings.TrimLeft(clause, "=!<>~")
	operator := clause[:len(clause)-len(version)]
	version, any := strings.CutSuffix(strings.TrimSpace(version), ".*")
	var parts []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return false, wrong
		}
		parts = append(parts, int(n))
	}
	given := len(parts)
	parts = append(parts, 0, 0)
	order := 0
	switch {
	case major != parts[0]:
		order = major - parts[0]
	case given > 1 || !any:
		order = minor - parts[1]
	}
	third := given > 2 // which is not known
	if any && operator != "==" && operator != "!=" {
		return false, wrong
	}
	switch operator {
	case ">=", ">":
		return order >= 0, nil
	case "<=":
		return order < 0 || order == 0 && third, nil
	case "<":
		return order < 0 || order == 0 && third && parts[2] > 0, nil
	case "==", "===":
		return order == 0, nil
	case "!=":
		return order != 0 || third || !any, nil
	case "~=":
		if given < 2 {
			return false, wrong
		}
		return major == parts[0] && (order == 0 || order > 0 && !third), nil
	}
	return false, wrong
}
