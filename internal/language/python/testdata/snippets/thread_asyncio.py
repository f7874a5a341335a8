import asyncio, threading
def run():
    print("in a thread:", asyncio.run(asyncio.sleep(0.001, 7)))
t = threading.Thread(target=run)
t.start()
t.join()
async def main():
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(event.set)).start()
    await asyncio.wait_for(event.wait(), 60)
    return "set"
print(await main(), asyncio.run(main()))

# Output:
# in a thread: 7
# set set
