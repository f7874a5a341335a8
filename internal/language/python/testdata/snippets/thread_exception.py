import threading
caught = []
threading.excepthook = lambda args: caught.append(args.exc_type.__name__)
t = threading.Thread(target=lambda: 1 / 0)
t.start(); t.join()
threading.excepthook = threading.__excepthook__
print(caught, t.is_alive())
local = threading.local()
local.x = 1
def other():
    caught.append(hasattr(local, "x"))
t = threading.Thread(target=other); t.start(); t.join()
print(caught[-1], local.x)

# Output:
# ['ZeroDivisionError'] False
# False 1
