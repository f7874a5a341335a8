import sys
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    sys.setrecursionlimit(10**9)
print(caught[0].message)
print(sys.getrecursionlimit() < 10**7)
sys.setrecursionlimit(5000)
print(sys.getrecursionlimit())

# Only: wasm
# Output:
# the recursion limit is 1,048,576 and not 1,000,000,000: the sandbox has no memory for more
# True
# 5000
