import queue, threading, time
q, got = queue.Queue(), []
class Producer(threading.Thread):
    def run(self):
        for i in range(3):
            q.put(i)
            time.sleep(0.001)
        q.put(None)
class Consumer(threading.Thread):
    def run(self):
        while (item := q.get()) is not None:
            got.append(item)
ts = [Producer(), Consumer()]
[t.start() for t in ts]
[t.join() for t in ts]
print(got)

# Output:
# [0, 1, 2]
