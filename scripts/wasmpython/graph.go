package main

import "fmt"

// recursive returns which functions begin with a check, so that there is one in each
// cycle of calls: calls can go on for as long as loops can. In a cycle that passes
// through a table, those check that tables have; in any other, all do.
func (m *module) recursive(bodies [][]byte) ([]bool, error) {
	n := len(bodies)
	direct := make([][]int, n)
	full := make([][]int, n+1)
	table := n // stands for whatever a table may have
	for i, code := range bodies {
		calls, indirect, err := m.calls(code)
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		direct[i] = calls
		full[i] = calls
		if indirect {
			full[i] = append(calls[:len(calls):len(calls)], table)
		}
	}
	for index := range m.taken {
		if i := int(index) - int(m.imported); i >= 0 && i < n {
			full[table] = append(full[table], i)
		}
	}
	inDirect, inFull := cyclic(direct), cyclic(full)
	out := make([]bool, n)
	for i := range out {
		out[i] = inDirect[i] || inFull[i] && m.taken[uint32(i)+m.imported]
	}
	return out, nil
}

// calls returns the functions that a body calls, without those that are imported, and
// whether it calls through a table.
func (m *module) calls(code []byte) (direct []int, indirect bool, err error) {
	r := &reader{data: code}
	for range r.count() {
		r.u32()
		r.byte()
	}
	for len(r.data) > 0 {
		switch op := r.byte(); op {
		case opCall:
			i := int64(r.u32()) - int64(m.imported)
			if r.err == nil && i >= int64(len(m.functions)) {
				return nil, false, fmt.Errorf("function %d is not known", i)
			}
			if i >= 0 {
				direct = append(direct, int(i))
			}
		case opRefFunc:
			m.taken[r.u32()] = true
		case opLoop:
			r.leb(33)
		case opIndirect:
			indirect = true
			fallthrough
		default:
			r.operands(op)
		}
	}
	return direct, indirect, r.err
}

// cyclic returns which nodes of a graph lie on a cycle: Tarjan's algorithm for strongly
// connected components, without recursion.
func cyclic(edges [][]int) []bool {
	n := len(edges)
	on := make([]bool, n)
	number, low := make([]int, n), make([]int, n) // 0: not visited
	stacked := make([]bool, n)
	var stack []int
	type frame struct{ node, next int }
	count := 0
	for root := range edges {
		if number[root] != 0 {
			continue
		}
		path := []frame{{root, 0}}
		for len(path) > 0 {
			f := &path[len(path)-1]
			v := f.node
			if f.next == 0 {
				count++
				number[v], low[v] = count, count
				stack = append(stack, v)
				stacked[v] = true
			}
			if f.next < len(edges[v]) {
				w := edges[v][f.next]
				f.next++
				switch {
				case w == v:
					on[v] = true
				case number[w] == 0:
					path = append(path, frame{w, 0})
				case stacked[w]:
					low[v] = min(low[v], number[w])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				parent := path[len(path)-1].node
				low[parent] = min(low[parent], low[v])
			}
			if low[v] != number[v] {
				continue
			}
			first := len(stack) - 1
			for stack[first] != v {
				first--
			}
			for _, w := range stack[first:] {
				stacked[w] = false
				on[w] = on[w] || len(stack)-first > 1
			}
			stack = stack[:first]
		}
	}
	return on
}
