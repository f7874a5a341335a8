import json
from collections import defaultdict
rows = json.loads('[{"city":"Bonn","n":3},{"city":"Ulm","n":5},{"city":"Bonn","n":4}]')
total = defaultdict(int)
for r in rows:
    total[r["city"]] += r["n"]
print(json.dumps(total, sort_keys=True))

# Output:
# {"Bonn": 7, "Ulm": 5}
