import getpass, os, platform, sys
print(sys.platform, os.name, os.cpu_count(), platform.system(), platform.machine(), getpass.getuser(), os.sep)

# Only: wasm
# Output:
# wasi posix 1 WASI wasm32 sandbox /
