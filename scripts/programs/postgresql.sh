# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A server that forks a process for each connection: parallel queries, many short connections, a
# backend that is killed, and the recovery.

packages=(postgresql-15)
ends=some # the killed one; and those that another program starts as another user

# It refuses to run as root.
as_itself() {
  if [ "$(id -u)" -eq 0 ]; then as=(setpriv --reuid postgres --regid postgres --clear-groups); else as=(); fi
}

prepare() {
  local as
  as_itself
  chmod a+x .. .
  mkdir first
  [ "${#as[@]}" -eq 0 ] || chown postgres first
  "${as[@]}" /usr/lib/postgresql/15/bin/initdb --pgdata first --auth trust --username postgres --no-sync >initdb.log
  cat >>first/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$PWD/first'
fsync = off
max_parallel_workers_per_gather = 2
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
END
  cat >work.sql <<'END'
CREATE TABLE t AS SELECT i AS id, 'word ' || i * 7919 % 100003 AS word, i * 31 % 977 AS n FROM generate_series(1, 40000) i;
CREATE INDEX by_word ON t (word);
ANALYZE t;
SELECT count(*), sum(n), min(word), max(word) FROM t;
SELECT n, count(*), left(string_agg(word, ' ' ORDER BY id), 50) FROM t GROUP BY n ORDER BY 2 DESC, 1 LIMIT 5;
SELECT a.word, b.n FROM t a JOIN t b ON b.word = a.word AND b.id <> a.id ORDER BY a.word, b.n LIMIT 5;
DO $$ BEGIN FOR i IN 1..500 LOOP EXECUTE format('PREPARE p%s AS SELECT * FROM t WHERE id = %s', i, i); END LOOP; END $$;
SELECT count(*) FROM pg_prepared_statements;
SELECT * FROM no_such_table;
END
}

run() {
  local as i victim
  as_itself
  rm -rf data
  cp --archive first data
  sed --in-place "s,^unix_socket_directories = .*,unix_socket_directories = '$PWD/data'," data/postgresql.conf
  [ -z "$records" ] || chmod a+rwx "$records"
  export PGHOST=$PWD/data PGUSER=postgres PGDATABASE=postgres
  started "${as[@]}" /usr/lib/postgresql/15/bin/postgres -D data >server.log 2>&1
  answers
  psql --no-psqlrc --no-align --tuples-only --file work.sql 2>&1
  for ((i = 0; i < 25 * scale; i++)); do psql --no-psqlrc --no-align --tuples-only --command "SELECT word FROM t WHERE id = $i + 1"; done | cksum
  # One backend is killed. The server ends the others and restarts from the data on disk.
  psql --command 'SELECT pg_sleep(60)' >/dev/null 2>&1 &
  victim=
  while [ -z "$victim" ]; do
    sleep 0.1
    victim=$(psql --no-align --tuples-only --command "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'")
  done
  kill -KILL "$victim"
  wait $! || echo "its client: $?"
  answers
  psql --no-psqlrc --no-align --tuples-only --command 'SELECT count(*) FROM t'
  kill -INT "$server_pid"
  gone
}

answers() {
  local i
  for i in {1..200}; do psql --command 'SELECT 1' >/dev/null 2>&1 && return; sleep 0.1; done
  echo 'no answer'
}
