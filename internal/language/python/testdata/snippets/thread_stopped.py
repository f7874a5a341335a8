import threading, time
stop, beats = threading.Event(), []
def heart():
    while not stop.wait(0.005):
        beats.append(1)
t = threading.Thread(target=heart, daemon=True)
t.start()
while not beats:
    time.sleep(0.005)
stop.set()
t.join(60)
print(len(beats) > 0, t.is_alive())

# Output:
# True False
