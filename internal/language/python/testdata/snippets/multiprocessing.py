from multiprocessing import Pool
with Pool(2) as p:
    p.map(abs, [1])

# Only: wasm
# Error: there are no processes here
# Output:
