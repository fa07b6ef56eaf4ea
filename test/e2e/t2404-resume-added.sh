# timeout=180
# Hosts that host_worker added are in a resumed job again: as newcomers, which its file may remove.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 1 --checkpoint-every 1 --
echo localhost >>host_worker
changed 'ADDED localhost'
members 0,1
PATIENCE=60 awaits 'checkpoint>=0'
end_job
rm "$T"/w*.jsonl
start again dtlaunch --resume .
JOB_PID=$PID
awaits --start members=0,1
expect_output again 'Going on with epoch [0-9]+ from '
expect_output again 'Workers on localhost were added before and join again'
changed 'ADDED localhost'
awaits .file.accepted=localhost,localhost
some_epochs 2
echo localhost >host_worker
changed 'ADDED localhost' 'REMOVED localhost'
end_job
# The removal also holds for a job that continues this one: it adds no host.
start third dtlaunch --resume .
JOB_PID=$PID
awaits --start members=0
some_epochs 2
! grep -q 'were added before' "$T/third.out" || fail "a removed host was added again"
changed
end_job
