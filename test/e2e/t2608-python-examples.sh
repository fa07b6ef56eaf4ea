# timeout=240 cost=30 needs=dttrain
# The examples of the Python package, as a job of two workers and (nightly: each of them) alone, on digits that they make up:
# they learn, their files can be read, and resume.py goes on as if it had never stopped. Nightly, an epoch in which a server
# is lost prints nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
is_nightly || share_imports
examples=$DT_SOURCE/kvstore/python/examples
# example NAME WORKERS ARGUMENTS...: alone (0), or as a job; its output is then in $T/NAME.WORKERS.out.
example() {
  local name=$1 workers=$2 job=()
  shift 2
  [ "$workers" = 0 ] || job=(dtlaunch -n "$workers" -s 1)
  run "$name.$workers" "${job[@]}" "${WORKER[@]}" "$examples/$name.py" "$@"
  expect_status 0
  expect_output "$name.$workers" " $((workers ? workers : 1)) workers"
}
# last NAME WORKERS WORD: the number after the word, in the last epoch's line.
last() { sed -nE "s/.*$3 ([0-9.]+),.*/\1/p" "$T/$1.$2.out" | tail -n 1; }
holds() { python3 -c "import sys; sys.exit(not ($1))" || fail "it is not true that $1"; }

all=(2)
! is_nightly || all+=(0)
for workers in 0 2; do
  example digits $workers --epochs 6 --step-ms 0
  holds "$(last digits $workers accuracy) > 0.85"
  example numpy_sgd $workers
  holds "$(last numpy_sgd $workers loss) < 0.1"
done
for workers in "${all[@]}"; do
  example mnist $workers --epochs 3 --samples 2000 --save mnist$workers.pt
  holds "$(last mnist $workers accuracy) > 0.95"
  example mnist_ddp $workers --epochs 2 --samples 2000 --save ddp$workers.pt
  holds "$(last mnist_ddp $workers accuracy) > 0.95"
done
for workers in "${all[@]}"; do
  example zero1_memory $workers --layers 10
done
bytes() { sed -nE 's/.*: ([0-9.]+) bytes a parameter.*/\1/p' "$T/zero1_memory.$1.out" | tail -n 1; }
holds "11.9 < $(bytes 2) < 14"
holds "abs($(last numpy_sgd 0 loss) - $(last numpy_sgd 2 loss)) < 1e-4"

example resume 0 --epochs 4 --file whole.pt
example resume 0 --epochs 2 --file parts.pt
cp parts.pt job.pt
example resume 0 --epochs 4 --file parts.pt
example resume 2 --epochs 4 --file job.pt
run files "$PYTHON" - <<'PY'
import torch

whole, parts, job = (torch.load(f"{name}.pt") for name in ("whole", "parts", "job"))
assert whole["next_epoch"] == parts["next_epoch"] == job["next_epoch"] == 4
assert whole["updates"] == parts["updates"] == job["updates"] == [[160] * 4] * 2, whole["updates"]
for name, value in whole["model"].items():
    assert torch.equal(value, parts["model"][name]), name
    torch.testing.assert_close(job["model"][name], value, rtol=0, atol=1e-4)
two, ddp = (torch.load(f"{name}.pt") for name in ("mnist2", "ddp2"))
assert two["next_epoch"] == 3 and set(two["states"][0]) == set(two["model"])
assert len(set(two["updates"][0])) == 1 and two["updates"][0][0] == 48, two["updates"]
assert all(one.abs().sum() > 0 for one in two["states"][0].values())
assert set(ddp["model"]) == set(two["model"]) and ddp["optimizer"]["param_groups"][0]["lr"] < 1e-3
PY
[ "$STATUS" = 0 ] || fail "the files: $(output files)"
! grep -hE 'Warning|Traceback' "$T"/*.out || fail "an example complains"
expect_nothing_left
is_nightly || exit 0

rm -rf .dtlaunch
start lost dtlaunch -n 2 -s 2 --checkpoint-every 1 "${WORKER[@]}" "$examples/mnist.py" --epochs 1000 --samples 1000 --save lost.pt
awaits --start 'epoch>=4'
kill -KILL "$(pid_of servers 1)"
happens rolled_back
awaits 'epoch>=6'
dtctl stop >/dev/null || fail "dtctl stop"
finished dtlaunch "$PID" 20
say "$(grep -c ' epoch [0-9]*: ' "$T/lost.out") epochs were printed"
! grep -E ' epoch ([2-9]|[0-9]{2,}): accuracy 0\.[0-8]' "$T/lost.out" || fail "an interrupted epoch was printed"
! grep -hE 'Warning|Traceback' "$T"/*.out || fail "an example complains"
expect_nothing_left
