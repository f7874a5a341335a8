from itertools import accumulate, groupby, islice, pairwise
def primes():
    found = []
    n = 2
    while True:
        if all(n % p for p in found):
            found.append(n)
            yield n
        n += 1
print(list(islice(primes(), 10)), list(accumulate([1, 2, 3])), [b - a for a, b in pairwise([1, 4, 9])])
print({k: len(list(g)) for k, g in groupby("aabccc")})

# Output:
# [2, 3, 5, 7, 11, 13, 17, 19, 23, 29] [1, 3, 6] [3, 5]
# {'a': 2, 'b': 1, 'c': 3}
