import threading, time
running = True
def spin():
    while running:
        time.sleep(0.001)
t = threading.Thread(target=spin, name="spinner", daemon=True)
t.start()
time.sleep(0.01)
running = False
t.join()
print(t.is_alive())

# Says: sallyport: spinner was ended at a wait: threads run while another one waits here
# Output:
# False
