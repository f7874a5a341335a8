import asyncio
async def work(n):
    await asyncio.sleep(0.01 * n)
    return n * n
print(await asyncio.gather(*(work(n) for n in range(5))))
async def slow():
    await asyncio.sleep(60)
try:
    await asyncio.wait_for(slow(), 0.01)
except asyncio.TimeoutError:
    print("timed out")

# Output:
# [0, 1, 4, 9, 16]
# timed out
