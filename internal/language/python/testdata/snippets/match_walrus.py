def describe(v):
    match v:
        case {"type": "point", "at": [x, y]}:
            return f"point {x},{y}"
        case [first, *rest] if rest:
            return f"{first} and {len(rest)} more"
        case str() as s:
            return s.upper()
        case _:
            return "?"
print([describe(v) for v in ({"type": "point", "at": [1, 2]}, [1, 2, 3], "x", 5)])

# Output:
# ['point 1,2', '1 and 2 more', 'X', '?']
