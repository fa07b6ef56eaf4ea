# cost=8
# dtctl metrics of a real job: its figures are those of the job, and promtool, Prometheus' own checker, finds nothing to
# complain about.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 2 -s 1 --checkpoint-every 1 --
PATIENCE=20 awaits 'checkpoint>=2' workers=2 '.pulse.boundaries>=1' '.workers.length=2'
wait_for 10 'dtctl metrics >"$T/metrics.out" && grep -q "^dtlaunch_worker_resident_bytes" "$T/metrics.out"' ||
  fail "no worker's memory in the metrics"
job=$(basename "$JOB"/.dtlaunch/*-*)
has() { expect_output metrics "^dtlaunch_$1\$"; }
has "workers\\{job_id=\"$job\",state=\"member\"\\} 2"
has "servers\\{job_id=\"$job\",state=\"listening\"\\} 1"
has "job_state\\{job_id=\"$job\",state=\"running\"\\} 1"
has "worker_info\\{job_id=\"$job\",worker=\"1\",host=\"localhost\",rank=\"1\",state=\"member\"\\} 1"
has "worker_samples_total\\{job_id=\"$job\",worker=\"0\",host=\"localhost\"\\} [1-9][0-9]*"
has "server_resident_bytes\\{job_id=\"$job\",server=\"0\",host=\"localhost\"\\} [1-9][0-9]*"
has "boundary_duration_seconds_count\\{job_id=\"$job\"\\} [1-9][0-9]*"
has "checkpoints_total\\{job_id=\"$job\"\\} [1-9][0-9]*"
has "worker_restarts_total\\{job_id=\"$job\"\\} 0"
if command -v promtool >/dev/null; then
  STATUS=0
  promtool check metrics <"$T/metrics.out" >"$T/promtool.out" 2>&1 || STATUS=$?
  expect_status 0
  [ ! -s "$T/promtool.out" ] || fail "promtool complains"
fi
run stop dtctl stop
finished job "$JOB_PID" 20
run none dtctl metrics
expect_status 3
expect_nothing_left
command -v promtool >/dev/null || skip "promtool is not here (scripts/install-deps --tests); the figures were compared"
