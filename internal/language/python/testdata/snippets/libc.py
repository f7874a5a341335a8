import platform
print(platform.libc_ver(), bool(platform.platform()))

# Only: wasm
# Output:
# ('', '') True
