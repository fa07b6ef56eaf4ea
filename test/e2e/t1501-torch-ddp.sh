# timeout=240 cost=20
# An ordinary program with PyTorch's DDP: rank 0 can listen at MASTER_ADDR:MASTER_PORT, on this machine
# and on hosts where rank 0's is not the master.
. "$(dirname "$0")/lib.sh"
python=/usr/bin/python3  # the distribution's, which has its torch, not the first in PATH
"$python" -c 'import torch.distributed' 2>/dev/null || skip 'python3-torch is not installed'
ddp=$DT_SOURCE/test/interop/ddp_gloo.py

run here dtlaunch -n 3 -s 0 "$python" "$ddp"
expect_status 0
for rank in 0 1 2; do expect_output here "^\[worker $rank localhost\] rank $rank of 3: trained"; done

ssh_hosts 3
run hosts dtlaunch -n 3 -s 0 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" sh -c '
  [ "$RANK" != 0 ] || echo "rank 0 is at $MASTER_ADDR:$MASTER_PORT"
  exec "$0" "$1"' "$python" "$ddp"
expect_status 0
expect_output hosts "rank 0 is at ${SSH_ADDRESSES[0]}:[0-9]+$"
for rank in 0 1 2; do expect_output hosts "^\[worker $rank .*\] rank $rank of 3: trained"; done
expect_nothing_left
