import threading, time
two, count = threading.BoundedSemaphore(2), []
def work(n):
    with two:
        time.sleep(0.001)
        count.append(n)
ts = [threading.Thread(target=work, args=(n,)) for n in range(6)]
[t.start() for t in ts]
[t.join() for t in ts]
print(sorted(count), repr(two)[-11:])
try:
    two.release()
except ValueError as e:
    print(e)
signal = threading.Semaphore(0)
threading.Thread(target=lambda: (time.sleep(0.001), signal.release(2))).start()
signal.acquire()
print(signal.acquire(timeout=60), signal.acquire(blocking=False))

# Output:
# [0, 1, 2, 3, 4, 5]  value=2/2>
# Semaphore released too many times
# True False
