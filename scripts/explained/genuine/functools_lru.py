# A function with functools.lru_cache and a limit: the cache is full, and its entries change.
#
# expect: cache|churn|nothing *
import functools
import random
import sys
import time


@functools.lru_cache(maxsize=2000)
def picture(number):
    return bytes(10_000 + number % 5_000)


end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
random.seed(1)
while time.monotonic() < end:
    for _ in range(30):
        picture(random.randrange(8_000))
    time.sleep(0.06)
print(picture.cache_info())
