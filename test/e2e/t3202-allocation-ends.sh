# timeout=120
# In an allocation of a scheduler TERM to dtlaunch says that all hosts go away: the job saves a checkpoint at the last
# boundary in time and ends with 75, and --auto-resume goes on from there. A second TERM stops. The scheduler's
# variable and its signals are all that is here of it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export SLURM_JOB_ID=1
worker=("$DT_BIN/elastic_worker" --log "$T/w%i.jsonl" --samples 200 --steps-per-epoch 20 --step-ms 20 --epochs)

start job dtlaunch --launcher local -n 1 -s 1 --auto-resume --notice-grace 8s --notice-margin 3s "${worker[@]}" 100000
PATIENCE=30 awaits --start 'epoch>=1'
expect_output job 'no job was ever started in .*: it begins'
kill -USR2 "$PID"
finished dtlaunch "$PID" 20
expect_status 75
expect_output job 'USR2: this allocation ends in 8 s'
expect_output job 'every host goes away, and the checkpoint of epoch [0-9]+ is there \(its allocation ends\): start the job again'

say "it goes on"
rm -f "$T"/w*.jsonl
start job dtlaunch --launcher local -n 1 -s 1 --auto-resume --notice-grace 60s "${worker[@]}" 100000
PATIENCE=30 awaits --start 'epoch>=1'
expect_output job 'ended with exit code 75 .*: it goes on with epoch [0-9]+ from'
epoch=$(sed -nE 's/.*it goes on with epoch ([0-9]+) from.*/\1/p' "$T/job.out")
awaits "epoch>$epoch"
[ "$(grep -m 1 '"event":"step"' "$T/w0.jsonl" | sed -E 's/.*"epoch":([0-9]+).*/\1/')" = "$epoch" ] || fail "it did not go on with epoch $epoch"
kill -XCPU "$PID"
STEP=0.2 wait_for 5 'grep -q "XCPU: this allocation ends" "$T/job.out"' || fail "XCPU is not taken for a notice"
kill -TERM "$PID"
sleep 1.1  # how long two signals count as one, not a wait
kill -TERM "$PID"
finished dtlaunch "$PID" 20
expect_status 130

say "another command begins"
run job dtlaunch --launcher local -n 1 -s 1 --auto-resume "${worker[@]}" 2
expect_status 0
expect_output job 'ran another command: it begins'
run job dtlaunch --launcher local -n 1 -s 1 --auto-resume "${worker[@]}" 2
expect_status 0
expect_output job 'has finished: it begins'
expect_nothing_left
