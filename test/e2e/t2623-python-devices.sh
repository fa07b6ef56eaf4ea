# timeout=240 cost=60 needs=dttrain
# Tensors on a device, which is emulated: dt.Job, dt.Optimizer and ddp_hook, alone and with two workers, have the bits that
# they have on the CPU, wherever the server computes and however bytes travel. CI has a diagonal of the table.
. "$(dirname "$0")/lib.sh"
has_torch || skip "no PyTorch"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
share_imports
emulated=$DT_BUILD/test/kvstore
mkdir -p "$T/p/bin" "$T/p/lib"
for program in dtlaunch dtctl dtsupervisor dtagent dtfleet; do
  ln "$DT_BIN/$program" "$T/p/bin/" 2>/dev/null || cp "$DT_BIN/$program" "$T/p/bin/"
done
cp "$emulated/emulated_dtserver" "$T/p/bin/dtserver"
cp -L "$DT_BUILD/lib/libdtkv.so.0" "$T/p/lib/"
bits() { grep -oE 'HASH .*' "$T/$1.out" | sed 's/.*: //' | sort -u; }
# trained NAME HOW WORKERS WORDS...: the words begin a job, or are empty.
trained() {
  local name=$1 how=$2 workers=$3 program=("$DT_SOURCE/test/bench/gpu_train.py")
  shift 3
  [ "$name" = "$how-$workers" ] || program=("$DT_SOURCE/test/e2e/python/as_cuda.py" "${program[@]}")
  run "$name" "$@" "${WORKER[@]}" "${program[@]}" --how "$how" --device cpu --model small --batch 8 --steps 3 --epochs 2
  expect_status 0
  [ "$(bits "$name" | wc -l)" = 1 ] || fail "$name: the workers' parameters differ"
  [ "$(bits "$name")" = "$(bits "$how-$workers")" ] || fail "$name has not the bits of the CPU"
}
for how in l1 l2 l3; do
  trained $how-1 $how 1
  trained $how-2 $how 2 dtlaunch -n 2 -s 1 --output all
done
# on_device HOW SERVER TRANSPORT
on_device() {
  local device=()
  [ "$2" = cpu ] || device=(--server-device "$2")
  PATH=$T/p/bin:$PATH DTKV_LIBRARY=$emulated/libemulated_dtkv.so trained "$1-$2-$3" "$1" 2 dtlaunch -n 2 -s 1 "${device[@]}" --transport "$3"
}
alone() { DTKV_LIBRARY=$emulated/libemulated_dtkv.so trained "$1-alone" "$1" 1; }
if is_nightly; then
  for how in l1 l2 l3; do
    alone $how
    for server in cpu cuda:0; do
      for transport in auto tcp; do on_device $how $server $transport; done
    done
  done
else
  alone l1
  on_device l1 cuda:0 auto
  on_device l2 cpu tcp
  on_device l3 cuda:0 tcp
fi
expect_nothing_left
