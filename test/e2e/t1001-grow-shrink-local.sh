# timeout=120 sanitized
# A job of one worker grows to three on its own machine and shrinks back to one, and ends well.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PS_VERBOSE=1 DMLC_INTERFACE=l  # as for a launcher of the dmlc tracker; "l" begins "lo"
train -n 1 -- --victim 0
printf 'localhost\nlocalhost via=local\n' >>host_worker
changed 'ADDED localhost' 'ADDED localhost'
members 0,1,2
awaits workers=3
dtctl status --json | python3 -c 'import json, sys
assert [(h["host"], h["via"]) for h in json.load(sys.stdin)["hosts"]] == [("localhost", "local")]'
some_epochs 2
echo localhost >host_worker
changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'REMOVED localhost'
members 0
some_epochs 2
worker_log once "$T/w0.jsonl"
worker_log left "$T/w1.jsonl"
worker_log left "$T/w2.jsonl"
end_job
expect_output job '^\[worker 1 localhost\] .*INFO worker 1: server 0 at 127.0.0.1 port [0-9]+, loop 0: connected, on this machine$'
