# timeout=120 sanitized
# A job of one worker grows to three on its own machine and shrinks back to one, and ends well.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 1 -- --victim 0
printf 'localhost\nlocalhost\n' >>host_worker
changed 'ADDED localhost' 'ADDED localhost'
members 0,1,2
awaits workers=3
some_epochs 2
echo localhost >host_worker
changed 'ADDED localhost' 'ADDED localhost' 'REMOVED localhost' 'REMOVED localhost'
members 0
some_epochs 2
worker_log once "$T/w0.jsonl"
worker_log left "$T/w1.jsonl"
worker_log left "$T/w2.jsonl"
end_job
