import threading
ready, order = threading.Event(), []
t = threading.Thread(target=lambda: (ready.wait(), order.append("after")))
t.start()
order.append("before")
ready.set()
t.join()
print(order)
box, full = [], threading.Condition()
def take():
    with full:
        while not box:
            full.wait()
        order.append(box.pop())
t = threading.Thread(target=take)
t.start()
with full:
    box.append("item")
    full.notify()
t.join()
print(order[-1], ready.wait(0.001), threading.Event().wait(0.001))

# Output:
# ['before', 'after']
# item True False
