import cmath, math
print(math.comb(20, 10), math.isqrt(10**20), math.gcd(84, 36), math.prod(range(1, 6)), cmath.sqrt(-4))
print(2**100 % 97, int("zz", 36), (0.1).hex(), round(2.675, 2), divmod(-7, 3))
print(len(str(3**5000)))

# Output:
# 184756 10000000000 12 120 2j
# 16 1295 0x1.999999999999ap-4 2.67 (-3, 2)
# 2386
