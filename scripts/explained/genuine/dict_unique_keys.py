# Results by request: each key is new, so that no result is ever found again.
#
# expect: leak *; growing block|churn|nothing *
import sys
import time

end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
results, request = {}, 0
while time.monotonic() < end:
    for _ in range(8):
        results[f"request {request}"] = bytearray(6000)
        request += 1
    time.sleep(0.06)
print(len(results))
