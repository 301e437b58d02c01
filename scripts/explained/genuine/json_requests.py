# Each request reads and writes a JSON document, and keeps nothing.
#
# expect: churn|nothing *
# env: PYTHONMALLOC=malloc
import json
import sys
import time

end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
text = json.dumps([{"id": i, "name": f"name {i}", "tags": ["a", "b", str(i)]} for i in range(400)])
size = 0
while time.monotonic() < end:
    document = json.loads(text)
    document.append({"id": size})
    size = len(json.dumps(document))
    time.sleep(0.05)
print(size)
