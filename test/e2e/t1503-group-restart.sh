# timeout=600 cost=75
# --on-change restart: a torch script that knows nothing of dtlaunch, on 2, 3, 3 (a worker was killed), 3 (an agent was) and
# 2 hosts.
# When the first process of a group begins nothing of the former group runs any more.
. "$(dirname "$0")/lib.sh"
has_torch || skip "$PYTHON has no torch"

# A worker: says who it is, looks for workers of former groups, and trains.
cat >"$T/worker" <<'END'
#!/bin/bash
for environ in /proc/[0-9]*/environ; do
  { mapfile -d '' -t all <"$environ"; } 2>/dev/null || continue
  text=" ${all[*]} "
  [[ $text = *" DT_JOB=$DT_JOB "* && $text = *" DT_ROLE=worker "* ]] || continue
  [[ $text = *" TORCHELASTIC_RESTART_COUNT=$TORCHELASTIC_RESTART_COUNT "* ]] || echo "STILL THERE: $environ $text"
done
echo "group $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS: rank $RANK of $WORLD_SIZE, \
node $GROUP_RANK of $GROUP_WORLD_SIZE, at $MASTER_ADDR:$MASTER_PORT" | tee -a "$GROUPS_FILE"
exec "$@" "$STEPS.$TORCHELASTIC_RESTART_COUNT.$RANK" "$SNAPSHOT" 20 50 5
END
chmod +x "$T/worker"

# steps GROUP RANK WORLD: how many steps it did.
steps() { grep -c "\"world\": $3" "$T/steps.$1.$2" 2>/dev/null || true; }
trains() {
  local rank
  for ((rank = 0; rank < $2; rank++)); do
    PATIENCE=60 wait_for 60 "[ \"\$(steps $1 $rank $2)\" -gt 10 ] 2>/dev/null"
  done
}
pid_of() { dtctl status --json | python3 -c "
import json, sys
print([w['pid'] for w in json.load(sys.stdin)['workers'] if w['rank'] == $1 and w['state'] == 'MEMBER'][0])"; }

ssh_hosts 3
mapfile -t host <"$SSH_HOSTS"
head -n 2 "$SSH_HOSTS" >two_hosts
start job dtlaunch -n 2 -H two_hosts "${SSH_OPTIONS[@]}" --elastic-training-enabled --on-change restart \
  --change-settle 500ms --leave-timeout 10s --env STEPS="$T/steps" --env SNAPSHOT="$T/snapshot" \
  --env GROUPS_FILE="$PWD/groups" \
  "$T/worker" "$PYTHON" "$DT_SOURCE/test/bench/pauses/torch_step.py"
job=$PID
awaits --start state=running
trains 0 2

say 'one joins'
dtctl add "${host[2]}"
trains 1 3
awaits workers=3 .group_restarts=1

say 'one is killed'
kill -KILL "$(pid_of 1)"
trains 2 3
awaits state=running .group_restarts=2
dtctl why "${host[1]}" | grep -q 'killed by signal 9' || fail "dtctl why does not say how the worker ended"

say 'an agent is killed: one restart, and with its host'
kill -KILL "$(ps -o ppid= -p "$(pid_of 1)")"
trains 3 3
awaits state=running workers=3 .group_restarts=3

say 'the supervisor is killed in the middle of a restart'
pkill_supervisor() { kill -KILL "$(supervisor)"; }
dtctl remove "${host[2]}"
awaits 'event group_stops ~ fewer'
pkill_supervisor
trains 4 2
awaits state=running workers=2 .group_restarts=4

# The log of changes: one joined, two died and came back, one left.
cut -d' ' -f1,2 host_worker_log >"$T/log"
printf '%s\n' '0 ADDED' '1 REMOVED' '2 ADDED' '3 REMOVED' '4 ADDED' '5 REMOVED' | diff "$T/log" - || fail 'host_worker_log'
# Each group went on from the snapshot of the one before, at a port of its own.
for group in 1 2 3 4; do
  read -r _ first < <(grep -m1 '"event": "step"' "$T/steps.$group.0" | sed -E 's/.*"epoch": ([0-9]+), "step": ([0-9]+).*/x \1\2/')
  [ "$first" != 00 ] || fail "group $group begins with step 0"
done
dtctl stop
finished job "$job" 30
output job | grep -q 'STILL THERE' && fail 'a worker of a former group was alive'
sed -E 's/:.* at / /' groups | sort -u >ports
[ "$(wc -l <ports)" = 5 ] || fail "groups share a port, or a group has two: $(<groups)"
[ "$(cut -d' ' -f5 ports | sort -u | wc -l)" = 5 ] || fail "a MASTER_PORT came twice: $(<groups)"
expect_output job 'group 1 of 3: rank 2 of 3, node 2 of 3, at'

say 'all exit with 0: the job has finished; the reason of a death is in dtctl why'
cat >record.py <<'END'
import os, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
    from torch.distributed.elastic.multiprocessing.errors import record
    @record
    def main():
        raise ValueError("no such batch")
    main()
while not os.path.exists("end"):
    time.sleep(0.1)  # between two looks, not a wait
END
start record dtlaunch -n 2 --on-change restart "$PYTHON" record.py
awaits --start state=running .group_restarts=1
dtctl why localhost | grep -q 'exit code 1: ValueError: no such batch' || fail "dtctl why: $(dtctl why localhost)"
touch end
finished record "$PID" 30
expect_status 0

say 'a program that opens a kvstore'
run kvstore dtlaunch -n 1 --on-change restart elastic_worker
expect_status 2
expect_output kvstore 'opened a kvstore, and --on-change restart is for commands that open none'
expect_nothing_left
