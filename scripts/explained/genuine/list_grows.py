# A list of records that only grows.
#
# expect: leak *; growing block|churn|nothing *
# env: PYTHONMALLOC=malloc
import sys
import time

end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
records = []
while time.monotonic() < end:
    for number in range(200):
        records.append({"number": number, "text": f"record {number} " * 8})
    time.sleep(0.08)
print(len(records))
