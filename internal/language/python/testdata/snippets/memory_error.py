try:
    held = [bytearray(1 << 30) for _ in range(5)]
except MemoryError:
    print("caught")
print(len(bytearray(1 << 20)))

# Only: wasm
# Output:
# caught
# 1048576
