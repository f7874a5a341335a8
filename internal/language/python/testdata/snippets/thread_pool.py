from concurrent.futures import ThreadPoolExecutor, as_completed, wait
import time
def f(n):
    time.sleep(0.001)
    if n == 3:
        raise ValueError("three")
    return n * 2
with ThreadPoolExecutor(max_workers=4) as pool:
    print(list(pool.map(f, [0, 1, 2])))
    futures = {pool.submit(f, n): n for n in range(5)}
    for done in as_completed(futures):
        if done.exception():
            print("failed", futures[done], done.exception())
    print(sorted(d.result() for d in futures if not d.exception()))

# Output:
# [0, 2, 4]
# failed 3 three
# [0, 2, 4, 8]
