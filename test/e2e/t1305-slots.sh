# timeout=120
# LOCAL_RANK and DT_SLOT are a worker's own for life: one that replaces a killed worker, or that is added after a removal,
# has the number that is free, and no living worker's.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
cat >"$T/worker" <<'EOT'
#!/bin/sh
[ "$LOCAL_RANK" = "$DT_SLOT" ] || exit 9
exec elastic_worker "$@"
EOT
chmod +x "$T/worker"
# slots SLOT...: of the workers that live, by id.
slots() {
  local has
  has=$(dtctl status --json | python3 -c 'import json, sys
workers = json.load(sys.stdin)["workers"]
own = [dict(v.split("=", 1) for v in open("/proc/%d/environ" % w["pid"]).read().split("\0") if "=" in v)["DT_SLOT"] for w in workers]
assert own == [str(w["slot"]) for w in workers], own
print(*own)')
  [ "$has" = "$*" ] || fail "the slots are $has, not $*"
}
TRAIN_COMMAND=$T/worker train -n 3 -s 1 --
slots 0 1 2
kill -KILL "$(pid_of workers 0)"
members 1,2,3
slots 1 2 0
echo localhost >>host_worker
members 1,2,3,4
slots 1 2 0 3
sed -i '$d' host_worker
members 1,2,3
awaits .workers.length=3
kill -KILL "$(pid_of workers 1)"
members 1,3,5
slots 1 0 2
end_job
