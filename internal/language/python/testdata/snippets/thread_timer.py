import threading
fired = []
t = threading.Timer(0.01, fired.append, [1])
t.start(); t.join()
c = threading.Timer(60, fired.append, [2])
c.start(); c.cancel(); c.join()
print(fired)

# Output:
# [1]
