# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Many small functions in C; cc1 and as get the library, too.

packages=(gcc)

prepare() {
  local i
  for ((i = 0; i < 500 * scale; i++)); do
    printf 'int f%d(const int *a, int n) { int s = %d; for (int i = 0; i < n; i++) s += a[i] * %d ^ (s >> %d); return s; }\n' \
      $i $i $((i % 13 + 1)) $((i % 7))
  done >work.c
}

run() { profiled gcc -O1 -c work.c -o work.o && cksum <work.o && nm work.o | cksum; }
