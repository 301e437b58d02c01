# shellcheck shell=bash disable=SC2034,SC2154 # real-programs reads what is set here, and sets what is read
# Our own demo program, built with debug information; with --quick without optimisation.

packages=()

prepare() { :; }

run() { profiled "$demo"; }
