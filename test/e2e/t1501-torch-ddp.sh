# timeout=240 cost=20
# An ordinary program with PyTorch's DDP: rank 0 can listen at MASTER_ADDR:MASTER_PORT, on this machine
# and on hosts where rank 0's is not the master.
. "$(dirname "$0")/lib.sh"
has_torch || skip "$PYTHON has no torch"
ddp=$DT_SOURCE/test/interop/ddp_gloo.py

run here dtlaunch -n 2 -s 0 "$PYTHON" "$ddp"
expect_status 0
for rank in 0 1; do expect_output here "^\[worker $rank localhost\] rank $rank of 2: trained"; done

ssh_hosts 2
run hosts dtlaunch -n 2 -s 0 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" sh -c '
  [ "$RANK" != 0 ] || echo "rank 0 is at $MASTER_ADDR:$MASTER_PORT"
  exec "$0" "$1"' "$PYTHON" "$ddp"
expect_status 0
expect_output hosts "rank 0 is at ${SSH_ADDRESSES[0]}:[0-9]+$"
for rank in 0 1; do expect_output hosts "^\[worker $rank .*\] rank $rank of 2: trained"; done

# Four workers on two hosts; what torchrun's environment has besides rank and rendezvous.
sed '/^[^#]/s/$/ slots=2/' "$SSH_HOSTS" >two_slots
run four dtlaunch -n 4 -s 0 -H two_slots "${SSH_OPTIONS[@]}" sh -c '
  echo "group $GROUP_RANK of $GROUP_WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE," \
    "role $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS," \
    "store ${TORCHELASTIC_USE_AGENT_STORE-of its own}"
  [ "$TORCHELASTIC_RUN_ID" = "$DT_JOB" ] || exit 9
  exec "$0" "$1"' "$PYTHON" "$ddp"
expect_status 0
for rank in 0 1 2 3; do
  expect_output four "^\[worker $rank .*\] rank $rank of 4: trained"
  expect_output four "^\[worker $rank .*\] group $((rank / 2)) of 2, local $((rank % 2)) of 2, role default $rank of 4, 0 of 0, store of its own"
done

# What @record writes down is the worker's last word.
cat >record.py <<'END'
import os, time
if os.environ["RANK"] != "1":
    time.sleep(60)
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("no such batch")
main()
END
run record dtlaunch -n 2 -s 0 "$PYTHON" record.py
expect_status 1
expect_output record 'worker 1 on localhost ended: exit code 1: ValueError: no such batch'
expect_nothing_left
