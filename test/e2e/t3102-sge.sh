# timeout=240 cost=30 schedulers nightly
# An elastic job inside a gridengine job, by qrsh -inherit: it grows and shrinks, each qrsh is killed, and
# qdel leaves nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/sge.sh"
sge_up 2
cat >"$T/job.sh" <<EOT
cd $JOB
$DT_BIN/starter_echo sge g2 || exit 1
exec $DT_BIN/dtlaunch -n 1 --poll-interval 300ms --elastic-training-enabled \
  $DT_BIN/elastic_worker --log $T/home/w%i.jsonl --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
EOT
chmod 755 "$T/job.sh"
of_nodes() { left_over | grep -E "dtagent|elastic_worker|dtserver|qrsh " || true; }
dtctl() { in_sge "$DT_BIN/dtctl" --job-dir "$JOB" "$@"; }

in_sge qsub -V -o "$T/home/job.txt" -j y -pe mpi 2 "$T/job.sh" >"$T/qsub.txt" || fail "qsub: $(cat "$T/qsub.txt")"
number=$(sed -nE 's/^Your job ([0-9]+) .*/\1/p' "$T/qsub.txt")
PATIENCE=120 awaits --start 'epoch>=1' || fail "$(cat "$T/home/job.txt")"
echo g2 >>host_worker
changed "ADDED g2"
members 0,1

say "each qrsh is killed: attached again, nothing restarted"
pids_of() { dtctl status --json | python3 -c 'import json, sys
print(*[p["pid"] for p in json.load(sys.stdin)[sys.argv[1]]])' "$1"; }
before="$(pids_of workers) $(pids_of servers)"
for node in g1 g2; do
  kill -KILL $(pgrep -f "qrsh -inherit $node ")
  happens link_down "$node"
  awaits "host $node up"
done
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
sed -i '$d' host_worker
changed "ADDED g2" "REMOVED g2"

say "qdel: nothing is left"
in_sge qdel "$number" >>"$T/qsub.txt"
STEP=0.5 wait_for 20 '[ -z "$(of_nodes)" ]' || fail "left after qdel: $(of_nodes)"
