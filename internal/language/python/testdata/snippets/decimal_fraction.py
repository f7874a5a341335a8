from decimal import Decimal, getcontext
from fractions import Fraction
getcontext().prec = 30
print(Decimal(1) / Decimal(7), Decimal("0.1") + Decimal("0.2"))
print(sum(Fraction(1, n) for n in range(1, 8)))

# Output:
# 0.142857142857142857142857142857 0.3
# 363/140
