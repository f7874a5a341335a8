import numpy as np

# Only: wasm
# Error: numpy is compiled for an operating system
# Output:
