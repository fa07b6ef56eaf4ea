#!/bin/bash
# The gain of compressed gradients on a slow link: ResNet-50's tensors, 2 workers and 1 server, on a
# loopback of RATE Mbit/s (tbf) in its own network namespace: one queue for both directions and both
# workers. Needs root, tc and a release build's dtbench.
#
#   usage: codec_link.sh [DTBENCH [RATE]]
#
# Prints milliseconds of a push and of a pushpull, and the speedup of each over no codec. Values
# return as float32: 2bit reduces a pushpull's bytes to (1/16 + 1) / 2, so where both directions
# share the link its speedup is at most 1.88, and a push's 16.
set -eu
dtbench=${1:-$(dirname "$0")/../../build/release/bin/dtbench}
rate=${2:-1000}
if [ -z "${DT_CODEC_LINK:-}" ]; then
  [ "$(id -u)" = 0 ] || { echo "codec_link.sh: a network namespace needs root" >&2; exit 77; }
  command -v tc >/dev/null || { echo "codec_link.sh: there is no tc (iproute2)" >&2; exit 77; }
  export DT_CODEC_LINK=1
  exec unshare -n -- "$0" "$dtbench" "$rate"
fi
ip link set lo up
# A loopback packet has up to 64 KB, and must not be larger than the burst.
tc qdisc add dev lo root tbf rate "${rate}mbit" burst 256kb latency 400ms

ms() {  # OPERATION CODEC
  "$dtbench" kv --transport tcp --op "$1" --codec "$2" --reps 3 --seconds 0.3 --json |
    python3 -c 'import json, sys
print("%.1f" % json.load(sys.stdin)["measurements"][0]["contenders"][0]["ms"]["median"])'
}
printf '%s Mbit/s\n%-10s%-8s%12s%10s\n' "$rate" operation codec "ms median" "x none"
for operation in push pushpull; do
  none=
  for codec in none 2bit fp16 bf16; do
    time=$(ms "$operation" "$codec")
    none=${none:-$time}
    printf '%-10s%-8s%12s%10s\n' "$operation" "$codec" "$time" \
      "$(python3 -c "print('%.2f' % ($none / $time))")"
  done
done
