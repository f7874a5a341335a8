package toon

import "slices"

// table is a sequence of objects that can be written as rows (§9.3): all have the
// same keys, and each column holds scalars only, or objects that form a table
// again.
type table struct {
	names  []string
	rows   []value  // objects with exactly names as keys, in that order
	groups []*table // by column; nil for a column of scalars
}

// newTable returns nil where the objects do not form a table. The order of the
// first one's keys is the table's.
func newTable(objects []value) *table {
	if len(objects) == 0 || len(objects[0].keys()) == 0 {
		return nil
	}
	names := objects[0].keys()
	rows := arrange(objects, names)
	if rows == nil {
		return nil
	}
	t := &table{names: names, rows: rows, groups: make([]*table, len(names))}
	for i := range names {
		if t.columnIsScalar(i) {
			continue
		}
		if t.groups[i] = newTable(t.column(i)); t.groups[i] == nil {
			return nil
		}
	}
	return t
}

// arrange returns the objects with their members in the order of names, or nil
// if one of them is not an object or has other keys.
func arrange(objects []value, names []string) []value {
	var position map[string]int // built when an order differs
	rows := make([]value, len(objects))
	for i, object := range objects {
		keys := object.keys()
		if object.kind != objectKind || len(keys) != len(names) {
			return nil
		}
		if slices.Equal(keys, names) {
			rows[i] = object
			continue
		}
		if position == nil {
			position = make(map[string]int, len(names))
			for j, name := range names {
				position[name] = j
			}
		}
		items := make([]value, len(names))
		for j, key := range keys {
			at, ok := position[key]
			if !ok {
				return nil
			}
			items[at] = object.items()[j]
		}
		rows[i] = newObject(names, items)
	}
	return rows
}

func (t *table) columnIsScalar(i int) bool {
	for _, row := range t.rows {
		if !row.items()[i].isScalar() {
			return false
		}
	}
	return true
}

func (t *table) column(i int) []value {
	out := make([]value, len(t.rows))
	for j, row := range t.rows {
		out[j] = row.items()[i]
	}
	return out
}

// keyedTable is newTable for an object whose members can be written as rows with
// names (§9.5).
func keyedTable(object value) *table {
	if object.kind != objectKind || len(object.items()) < 2 {
		return nil
	}
	return newTable(object.items())
}
