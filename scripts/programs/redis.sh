# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A server under redis-benchmark, then questions whose answers do not depend on time.

packages=(redis-server redis-tools)

prepare() { :; }

run() {
  local key
  started redis-server --port 0 --unixsocket "$PWD/socket" --save '' --appendonly no --logfile server.log
  for _ in {1..100}; do redis-cli -s socket ping >/dev/null 2>&1 && break; sleep 0.1; done
  # The benchmark's numbers differ each time; its exit status does not. Then come replies that do
  # not depend on time.
  redis-benchmark -s "$PWD/socket" -n $((12500 * scale)) -q >benchmark.log 2>&1 || echo "redis-benchmark: $?"
  redis-cli -s socket flushall
  for key in {1..50}; do
    printf 'SET key%d %s\nRPUSH list %d\nHSET hash f%d %d\nZADD sorted %d member%d\n' \
      "$key" "$(seq -s, "$key")" "$key" "$key" "$key" $((key * 37 % 41)) "$key"
  done | redis-cli -s socket | cksum
  for key in 'GET key40' 'LRANGE list 0 9' 'HLEN hash' 'ZRANGE sorted 0 9' 'DBSIZE' 'EVAL "return #KEYS" 2 a b' 'NOSUCH'; do
    redis-cli -s socket <<<"$key"
  done
  redis-cli -s socket shutdown nosave
  gone
}
