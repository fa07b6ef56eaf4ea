# timeout=400 cost=60 needs=dttrain
# What a machine with a GPU gets runs in one folder, without packages of ours; here on the CPU. Nightly, every part.
. "$(dirname "$0")/lib.sh"
has_torch || skip "no PyTorch"
run stage "$DT_SOURCE/scripts/gpu-lease" stage --build "$DT_BUILD" "$T/lease"
expect_status 0
parts=facts,eq_l1_2gpu,elastic
! is_nightly || parts=
# The budget is that of a slow machine: what a lease has time for, the lease tells.
run lease "$T/lease/gpu-lease" run --dry --budget 900 --python "$PYTHON" --parts "$parts" --out "$T/out"
expect_status 0
for part in facts eq_l1_2gpu elastic; do expect_output lease "^PASS +$part "; done
tar -xzf "$T/out/logs.tar.gz" -C "$T"
said() { grep -hoE "$2.*" "$T/logs/$1.log" | sed 's/.*: //' | sort -u; }
loss='LOSS .*epoch 1 '
[ "$(said eq_l1_2gpu "HASH|$loss" | wc -l)" = 2 ] || fail "the workers' parameters or losses differ: $(said eq_l1_2gpu "HASH|$loss")"
if is_nightly; then
  [ -n "$(said eq_plain "$loss")" ] || fail "PyTorch alone told no loss"
  for part in eq_l1_host eq_l1_tcp eq_l2_2 eq_l3_2; do
    [ "$(said $part "$loss")" = "$(said eq_plain "$loss")" ] || fail "$part has another loss than PyTorch alone"
  done
fi
expect_nothing_left
