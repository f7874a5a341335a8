def deep(n):
    return deep(n + 1)
try:
    deep(0)
except RecursionError as e:
    print("caught", str(e)[:32])
print(sum(range(10)))

# Output:
# caught maximum recursion depth exceeded
# 45
