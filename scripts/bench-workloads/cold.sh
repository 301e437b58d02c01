#!/bin/sh
# Writes cold.c: pairs at the end of call chains through 8,192 functions, so that hardly a frame of
# a walk has been unwound lately. A cache of a few hundred unwind rules (framehop's has 509) misses
# at almost every frame.
#
#   cold N [depth]      N pairs; 1,000 different stacks, taken in turn
cat <<'HEAD'
#include "work.h"
typedef void link_of_chain(long left, uint64_t state);
extern link_of_chain *const links[8192];
OWN_FRAME static void make_pair(void) { free(escapes(must(malloc(64)))); NO_TAIL_CALL(); }
#define F(n) OWN_FRAME static void f##n(long left, uint64_t state) { \
    if (left <= 0) make_pair(); \
    else { state = state * 6364136223846793005u + 1442695040888963407u; links[state >> 51](left - 1, state); } \
    NO_TAIL_CALL(); }
HEAD
i=0
while [ $i -lt 8192 ]; do printf 'F(%d)\n' $i; i=$((i + 1)); done
printf 'link_of_chain *const links[8192] = {\n'
i=0
while [ $i -lt 8192 ]; do printf 'f%d,' $i; i=$((i + 1)); done
cat <<'TAIL'
};
int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 100000), depth = argument(argc, argv, 2, 40);
    for (long i = 0; i < n; i++) f0(depth - 3, (uint64_t)(i % 1000) * 0x9E3779B97F4A7C15u);
    return 0;
}
TAIL
