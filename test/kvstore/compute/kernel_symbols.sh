#!/usr/bin/env bash
# Checks the symbols of kvstore/compute/kernels' object files. A level's file may export only its table: if two
# files define a function, the linker keeps one of them, which would then run on every machine.
#   kernel_symbols.sh OBJECT...
set -euo pipefail

levels=0 bad=0
for object in "$@"; do
  case $object in */kernels.cpp.o) continue ;; esac
  levels=$((levels + 1))
  while read -r symbol; do
    case $symbol in *Kernels) continue ;; esac
    echo "$object: $symbol"
    bad=$((bad + 1))
  done < <(nm --extern-only --defined-only "$object" | awk '$NF ~ /^_Z/ {print $NF}' | c++filt)
done
[ $levels -gt 0 ] || { echo "no level's object given"; exit 1; }
echo "kernel_symbols: $levels levels, $bad symbols too many"
[ $bad = 0 ]
