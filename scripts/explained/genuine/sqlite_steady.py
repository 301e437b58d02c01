# An in-memory database of SQLite whose old rows are deleted as new ones come.
#
# expect: cache|one-time|churn|nothing *
import sqlite3
import sys
import time

end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, text TEXT)")
last = 0
while time.monotonic() < end:
    rows = [(f"event at {time.monotonic()} " * 20,) for _ in range(100)]
    database.executemany("INSERT INTO events (text) VALUES (?)", rows)
    last += len(rows)
    database.execute("DELETE FROM events WHERE id < ?", (last - 6_000,))
    time.sleep(0.06)
print(database.execute("SELECT count(*) FROM events").fetchone()[0])
