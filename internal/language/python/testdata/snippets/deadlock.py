import queue
queue.Queue().get()

# Only: wasm
# Error: deadlock: nothing can end this wait
# Output:
