import inspect
def area(w: float, h: float = 1.0) -> float:
    "The area."
    return w * h
print(inspect.signature(area), inspect.getdoc(area), len(inspect.getsource(area).splitlines()))

# Output:
# (w: float, h: float = 1.0) -> float The area. 3
