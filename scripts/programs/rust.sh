# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Our own demo program, built with debug information; with --quick without optimisation.

packages=()

prepare() { :; }

run() { profiled "$demo"; }
