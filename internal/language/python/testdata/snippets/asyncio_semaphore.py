import asyncio
running = most = 0
async def job(gate):
    global running, most
    async with gate:
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
gate = asyncio.Semaphore(3)
await asyncio.gather(*(job(gate) for _ in range(12)))
print(most)

# Output:
# 3
