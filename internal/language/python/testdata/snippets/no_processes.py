import subprocess
subprocess.run(["ls", "-l"])

# Only: wasm
# Error: Hint: there are no processes here
# Output:
