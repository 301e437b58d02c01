# An in-memory database of SQLite that rows are only inserted to.
#
# expect: leak *; churn|nothing *
import sqlite3
import sys
import time

end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else "1e9")
database = sqlite3.connect(":memory:")
database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, text TEXT)")
while time.monotonic() < end:
    rows = [(f"event at {time.monotonic()} " * 20,) for _ in range(60)]
    database.executemany("INSERT INTO events (text) VALUES (?)", rows)
    time.sleep(0.06)
print(database.execute("SELECT count(*) FROM events").fetchone()[0])
