import threading, time
class Worker(threading.Thread):
    def __init__(self, n):
        super().__init__(daemon=True)
        self.n = n
    def run(self):
        time.sleep(0.01 * self.n)
        done.append(self.n)
done = []
workers = [Worker(n) for n in range(4)]
[w.start() for w in workers]
[w.join(timeout=60) for w in workers]
print(sorted(done), [w.is_alive() for w in workers])

# Output:
# [0, 1, 2, 3] [False, False, False, False]
