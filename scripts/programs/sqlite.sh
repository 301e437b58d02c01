# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A database that is filled, indexed and queried.

packages=(sqlite3)

prepare() {
  cat >work.sql <<END
CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT, n INTEGER);
WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < $((40000 * scale)))
  INSERT INTO t SELECT i, printf('word %06d', i * 7919 % 100003), i * 31 % 977 FROM c;
CREATE INDEX by_word ON t (word);
SELECT count(*), sum(n), min(word), max(word) FROM t;
SELECT n, count(*), group_concat(word, ' ') FROM t WHERE id % 50 = 0 GROUP BY n ORDER BY 2 DESC, 1 LIMIT 20;
SELECT a.word, b.n FROM t a JOIN t b ON b.word = a.word AND b.id <> a.id ORDER BY a.word, b.n LIMIT 20;
SELECT * FROM no_such_table;
END
}

run() { rm -f work.db; profiled sqlite3 work.db <work.sql 2>&1; }
