import queue, threading
def consume(q, got):
    while (item := q.get()) is not None:
        got.append(item)
def produce(q):
    for i in range(10):
        q.put(i)
    q.put(None)
q, got = queue.Queue(maxsize=3), []
t = threading.Thread(target=consume, args=(q, got))
t.start()
produce(q)
t.join()
print(got)
q, got = queue.Queue(2), []
ts = [threading.Thread(target=produce, args=(q,)), threading.Thread(target=consume, args=(q, got))]
[t.start() for t in ts]
[t.join() for t in ts]
print(got, q.maxsize)
q.put(1)
q.put(2)
try:
    q.put(3, timeout=0.01)
except queue.Full:
    print("full")

# Output:
# [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
# [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] 2
# full
