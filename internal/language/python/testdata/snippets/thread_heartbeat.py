import threading, time
stop, running, done = threading.Event(), True, []
def beat():
    while not stop.wait(0.001):
        pass
    done.append("beat")
def spin():
    while running:
        time.sleep(0.001)
    done.append("spin")
def work():
    time.sleep(0.01)
    done.append("work")
b, s, w = threading.Thread(target=beat), threading.Thread(target=spin), threading.Thread(target=work)
b.start(); s.start(); w.start()
w.join()
stop.set()
running = False
b.join(); s.join()
print(done[0], sorted(done))

# Output:
# work ['beat', 'spin', 'work']
