# An asyncio queue without a limit, between a fast producer and a slow consumer.
#
# expect: backlog *; churn|nothing *
import asyncio
import sys


async def produce(queue):
    while True:
        for _ in range(9):
            queue.put_nowait(bytearray(8_000))
        await asyncio.sleep(0.06)


async def consume(queue):
    while True:
        for _ in range(6):
            await queue.get()
        await asyncio.sleep(0.06)


async def main():
    queue = asyncio.Queue()
    tasks = [asyncio.create_task(produce(queue)), asyncio.create_task(consume(queue))]
    await asyncio.sleep(float(sys.argv[1] if len(sys.argv) > 1 else "1e9"))
    for task in tasks:
        task.cancel()
    print(queue.qsize())


asyncio.run(main())
