import multiprocessing
from multiprocessing import get_context

def said(f, *args):
    try:
        f(*args)
    except OSError as e:
        print(e.strerror.partition(": use ")[2])

said(multiprocessing.Value, "i", 0)
said(multiprocessing.RawArray, "i", 3)
said(multiprocessing.Manager)
said(multiprocessing.Queue)
said(multiprocessing.Event)
said(get_context("spawn").Lock)
said(multiprocessing.Process(target=print).start)
from multiprocessing import shared_memory

# Only: wasm
# Error: Hint: there are no processes here: Python runs alone, in WebAssembly. Use threads
# Output:
# a plain object and threading.Lock
# a plain object and threading.Lock
# a plain object and threading.Lock
# queue.Queue
# threading.Event
# threading.Lock
# threading.Thread
