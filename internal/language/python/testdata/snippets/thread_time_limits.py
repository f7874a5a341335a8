import queue, threading, time
ready, q, said = threading.Event(), queue.Queue(), []
def wait():
    said.append(ready.wait(timeout=60))
def consume():
    while (item := q.get(timeout=60)) is not None:
        said.append(item)
def produce():
    for i in range(3):
        q.put(i)
        time.sleep(0.001)
    q.put(None)
    ready.set()
ts = [threading.Thread(target=f) for f in (wait, consume, produce)]
[t.start() for t in ts]
[t.join() for t in ts]
print(sorted(said, key=str))

# Output:
# [0, 1, 2, True]
