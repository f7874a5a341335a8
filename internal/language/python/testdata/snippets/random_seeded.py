import random
r = random.Random(7)
print(r.randint(1, 100), r.sample(range(10), 3), round(r.gauss(0, 1), 6))
print(random.random() != random.random())

# Output:
# 42 [2, 6, 0] 1.112915
# True
