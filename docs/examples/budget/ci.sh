#!/bin/sh
# Usage: ci.sh PROGRAM [ARGS]...
# Ends as the program does if it fails. Otherwise with 3 if a limit of heapprof.toml is exceeded,
# and with 4 if one cannot be judged.
set -e
heapprof run -q -i 1 -o measured --overwrite -- "$@"
heapprof check --joined --budget heapprof.toml measured*.heaplog
