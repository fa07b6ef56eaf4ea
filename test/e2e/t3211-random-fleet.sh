# timeout=900 cost=340 nightly
# For five minutes a discovery script adds and drops hosts at random, fails and hangs, while workers, agents, dtfleet and supervisors
# are killed. What is not killed on base hosts stays, nobody trains who was not named, and in the end the job has all that are named. SEED=N: that run again; LASTING=S: for so long.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 6
mapfile -t hosts < <(sed -E 's/^([^@]*@)?([^: ]+).*/\2/' "$SSH_HOSTS")
head -n 2 "$SSH_HOSTS" >base
RANDOM=${SEED:=$((RANDOM))}
say "SEED=$SEED"
cat >discover.sh <<'END'
#!/bin/bash
[ ! -e hangs ] || sleep 20  # how long a hanging run lasts, not a wait
[ ! -e broken ] || exit 3
cat names
END
chmod +x discover.sh
names() {  # HOST...: the base hosts and these are named from now on
  printf '%s\n' "${hosts[@]:0:2}" "$@" >names.new
  mv names.new names
}
fleet() { pgrep -f "^([^ ]*/)?dtfleet --job-dir $JOB " || true; }
any_worker() { pids_of workers 2>/dev/null | tr ' ' '\n' | grep -v '^0$' | shuf -n 1 --random-source=<(yes $RANDOM); }
names
train -n 2 -s 1 -H base "${SSH_OPTIONS[@]}" --max-restarts 1000 --max-futile-restarts 1000 --restart-refill 5s --fleet 'command:./discover.sh' --
faults=() until=$((SECONDS + ${LASTING:-300}))
while [ $SECONDS -lt $until ]; do
  chosen=()
  for host in "${hosts[@]:2}"; do [ $((RANDOM % 2)) = 0 ] || chosen+=("$host"); done
  names "${chosen[@]}"
  rm -f broken hangs
  case $((RANDOM % 8)) in
    0) fault=broken && touch broken ;;
    1) fault=hangs && touch hangs ;;
    2) fault=dtfleet && pid=$(fleet) && kill -KILL $pid || true ;;
    3) fault=supervisor && kill -KILL "$(supervisor)" || true ;;
    4) fault=agent && pid=$(any_worker) && kill -KILL "$(ps -o ppid= -p "$pid" | tr -d ' ')" || true ;;
    5 | 6) fault=worker && pid=$(any_worker) && kill -KILL "$pid" || true ;;
    *) fault=none ;;
  esac
  faults+=("$fault")
  sleep $((2 + RANDOM % 12))  # how long it is so, not a wait
done
say "$(printf '%s\n' "${faults[@]}" | sort | uniq -c | paste -sd,)"
rm -f broken hangs
names "${hosts[@]:2}"
PATIENCE=120 awaits --start workers=6 '.fleet.text=6 named'
awaits "epoch>=$(($(dtctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["epoch"])') + 2))"
[ "$(dtctl status --json | python3 -c 'import json, sys; print(*sorted(w["host"].split(":")[0] for w in json.load(sys.stdin)["workers"]))')" = "$(printf '%s\n' "${hosts[@]}" | sort | paste -sd ' ')" ] ||
  fail "not one worker on each host: $(dtctl status)"
[ "$(event worker_removed ' [(](exit code 0|notice)')" != 0 ] || fail "nobody was asked to leave: $(changes)"
asked=$(event worker_removed "on (${hosts[0]}|${hosts[1]}):.* \((exit code 0|notice)")
[ "$asked" = 0 ] || fail "$asked times a worker of a base host was asked to leave: $(grep worker_removed "$(story)")"
[ "$(changes | cut -d' ' -f1)" = "$(seq 0 $(($(changes | wc -l) - 1)))" ] || fail "the log's numbers: $(changes)"
# Of each host ADDED and REMOVED take turns.
for host in "${hosts[@]:2}"; do
  [ "$(changes | awk -v host="$host" '$3 == host { print $2 }' | uniq -d)" = "" ] || fail "$host: $(changes | grep "$host")"
done
say "$(changes | cut -d' ' -f2 | sort | uniq -c | paste -sd,) lines of host_worker_log"
end_job
