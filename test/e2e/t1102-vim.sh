# timeout=120
# host_worker saved by vim, which writes in place (backupcopy=yes) or renames (backupcopy=no).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
vim=$(command -v vim || command -v vim.tiny) || skip "no vim here"
train -n 1 --
edit() { TERM=dumb timeout 20 "$vim" -u NONE -i NONE -N -es -c "set backupcopy=$1" -c "$2" -c wq host_worker || fail "vim: $?"; }
edit yes '$copy $'
changed 'ADDED localhost'
edit no '$delete'
changed 'ADDED localhost' 'REMOVED localhost'
edit no '$copy $'
changed 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost'
edit yes '$delete'
changed 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost' 'REMOVED localhost'
[ "$(event file_refused)" = 0 ] || fail "something was refused"
worker_log once "$T/w0.jsonl"
end_job
