# timeout=90
# One job per folder; a later job sets the files of an ended one aside.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 1 --
run second dtlaunch -n 1 -s 0 true
expect_status 68
expect_output second 'job .* is running in .* \(pid [0-9]+ on this host\): stop it with'
# Another PID namespace sees none of the job's processes: that does not mean that they ended.
if unshare -pf --mount-proc true 2>/dev/null; then
  run apart unshare -pf --mount-proc dtlaunch -n 1 -s 0 true
  expect_status 68
  expect_output apart 'in another PID namespace of this machine'
fi
some_epochs 1
end_job
run third dtlaunch -n 1 -s 0 true
expect_status 0
ls .dtlaunch/*/host_worker_log >/dev/null || fail "the first job's files were not set aside"
