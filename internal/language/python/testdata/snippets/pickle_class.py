import copy, pickle
class Point:
    def __init__(self, x):
        self.x = x
p = pickle.loads(pickle.dumps(Point([1, 2])))
q = copy.deepcopy(p)
q.x.append(3)
print(p.x, q.x, type(p) is Point)

# Output:
# [1, 2] [1, 2, 3] True
