import queue, threading
q = queue.Queue()
seen = []
def worker():
    while True:
        item = q.get()
        seen.append(item)
        q.task_done()
threading.Thread(target=worker, daemon=True).start()
for i in range(5):
    q.put(i)
q.join()
print(seen)

# Output:
# [0, 1, 2, 3, 4]
