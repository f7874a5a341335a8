import asyncio
async def main():
    q = asyncio.Queue(2)
    async def producer():
        for i in range(5):
            await q.put(i)
        await q.put(None)
    async def consumer():
        got = []
        while (item := await q.get()) is not None:
            got.append(item)
        return got
    _, got = await asyncio.gather(producer(), consumer())
    return got
print(asyncio.run(main()))
async with asyncio.timeout(5), asyncio.TaskGroup() as g:
    a = g.create_task(asyncio.to_thread(sum, [1, 2, 3]))
print(a.result())

# Output:
# [0, 1, 2, 3, 4]
# 6
