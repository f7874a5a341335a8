import queue, threading, time
q, got = queue.Queue(), []
def consume():
    while (item := q.get()) is not None:
        got.append(item)
def produce():
    for i in range(4):
        q.put(i)
        time.sleep(0.001)
    q.put(None)
a, b = threading.Thread(target=consume), threading.Thread(target=produce)
a.start(); b.start(); a.join(); b.join()
print(got)

# Output:
# [0, 1, 2, 3]
