from functools import lru_cache, reduce, partial
@lru_cache(None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(200), reduce(lambda a, b: a * b, range(1, 11)), partial(pow, 2)(10), fib.cache_info().hits)

# Output:
# 280571172992510140037611932413038677189525 3628800 1024 198
