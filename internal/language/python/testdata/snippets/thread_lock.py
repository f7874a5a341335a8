import threading, time
lock, count = threading.Lock(), 0
def add():
    global count
    for _ in range(3):
        with lock:
            now = count
            time.sleep(0.0005)
            count = now + 1
ts = [threading.Thread(target=add) for _ in range(5)]
[t.start() for t in ts]
[t.join() for t in ts]
print(count)
r = threading.RLock()
with r, r:
    print("twice")

# Output:
# 15
# twice
