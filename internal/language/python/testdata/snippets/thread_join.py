import threading
results = {}
def work(n):
    results[n] = n * n
threads = [threading.Thread(target=work, args=(n,), name=f"w{n}") for n in range(5)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(sorted(results.items()), any(t.is_alive() for t in threads), threading.active_count())

# Output:
# [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16)] False 1
