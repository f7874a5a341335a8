import queue, threading, time
q, stop, got = queue.Queue(), threading.Event(), []
def tick():
    n = 0
    while not stop.wait(0.005):
        q.put(n)
        n += 1
def consume():
    while (item := q.get()) is not None:
        got.append(item)
a, b = threading.Thread(target=tick, daemon=True), threading.Thread(target=consume)
a.start(); b.start()
while q.empty() and not got:
    time.sleep(0.005)
stop.set()
a.join()
q.put(None)
b.join()
print(got[:1])

# Output:
# [0]
