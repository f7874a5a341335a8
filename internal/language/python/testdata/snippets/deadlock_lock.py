import threading
gate = threading.Lock()
gate.acquire()
print(gate.acquire(timeout=0.01), gate.acquire(False))
gate.acquire()

# Only: wasm
# Error: deadlock: nothing can end this wait
# Output:
# False False
