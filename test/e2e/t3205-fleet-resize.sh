# timeout=300 cost=40
# dtctl grow and shrink go to the provider of --fleet, here one that gives back its machine with the highest number alone, as a
# StatefulSet does. A dtfleet that dies between asking and saying so asks for nothing twice.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 5
mapfile -t hosts < <(sed -E 's/^([^@]*@)?([^: ]+).*/\2/' "$SSH_HOSTS")
head -n 2 "$SSH_HOSTS" >base
printf '%s\n' "${hosts[@]}" >names
echo 2 >size
printf '%s\n' 0 0 0 0 0 >lives  # of each machine: how often it was made
# Machine K is there while K is below the size.
cat >numbered.sh <<'END'
#!/bin/bash
field() { [[ $request =~ \"$1\":\ ?\"?([^\",}]*) ]] && printf %s "${BASH_REMATCH[1]}"; }
refuse() { answer="\"ok\":false,\"kind\":\"wrong\",\"error\":\"$1\""; }
mapfile -t names <names
while IFS= read -r request; do
  answer='"ok":true' size=$(<size)
  mapfile -t lives <lives
  case $(field "do") in
    hello) answer+=',"version":1,"name":"numbered","marks":false,"can":["grow","let_go"],"every_s":2' ;;
    list)
      machines=
      for ((k = 0; k < size; k++)); do
        machines+="${machines:+,}{\"id\":\"$k.${lives[k]}\",\"host\":\"${names[k]}\",\"state\":\"ready\",\"order\":$k}"
      done
      answer+=",\"wished\":$size,\"machines\":[$machines]"
      ;;
    grow)
      to=$(field to)
      if [ "$size" != "$to" ] && [ "$size" != "$(field from)" ]; then
        refuse "$size machines by now"
      elif [ "$to" -gt ${#names[@]} ]; then
        refuse "there are ${#names[@]} machines"
      else
        for ((k = size; k < to; k++)); do lives[k]=$((lives[k] + 1)); done
        printf '%s\n' "${lives[@]}" >lives
        echo "$to" >size
        answer+=",\"said\":\"$to machines in all\""
        [ ! -e die ] || { rm die; kill -KILL $PPID; }
      fi
      ;;
    let_go)
      id=$(field id)
      if [ "${lives[${id%.*}]}" != "${id#*.}" ] || [ "${id%.*}" -ge "$size" ]; then :
      elif [ "${id%.*}" = $((size - 1)) ]; then echo "${id%.*}" >size
      else answer+=",\"later\":\"${names[${id%.*}]} goes back after ${names[size - 1]}\""
      fi
      echo "${names[${id%.*}]}" >>let_go
      ;;
    mark | confirm) ;;
    *) refuse "no such request" ;;
  esac
  echo "{\"n\":$(field n),$answer}"
done
END
chmod +x numbered.sh
python3 "$DT_SOURCE/test/fleet/conformance.py" --machines 2 ./numbered.sh || fail "numbered.sh is no provider"
echo 2 >size
: >let_go
refused() {  # PATTERN COMMAND...
  local pattern=$1
  shift
  run refusal "$@"
  [ "$STATUS" != 0 ] || fail "not refused: $*"
  expect_output refusal "$pattern"
}
size_is() { wait_for 20 "[ \$(<size) = $1 ]" || fail "the provider has $(<size) machines, not $1"; }

train -n 2 -s 1 -H base "${SSH_OPTIONS[@]}" --max-workers 5 --fleet ./numbered.sh --
awaits '.fleet.text=2 asked for, 2 here'
say "what cannot be is refused, and asks for nothing"
refused '4 more workers would be 6, and --max-workers is 5' dtctl grow 4
refused 'words for sbatch are for Slurm, and the job has numbered' dtctl grow 1 -- -p gpu
refused 'numbered has 0 machines that could go, not 1' dtctl shrink
refused "${hosts[0]} is no machine of numbered that could go" dtctl shrink "${hosts[0]}"
size_is 2

say "2 -> 4, at once and whole; dtfleet dies between asking and saying so"
: >die
run grow dtctl grow 2
expect_status 0
expect_output grow '^4 machines in all$'
[ ! -e die ] || fail "the provider was not asked"
members 0,1,2,3
size_is 4

say "one that cannot go yet is left, waits, and is not used again, also by another dtfleet"
run shrink dtctl shrink "${hosts[2]}"
expect_status 0
expect_output shrink "^${hosts[2]}: workers there leave at the next epoch, then numbered gets it back"
awaits ".fleet.text ~ ${hosts[2]} goes back after ${hosts[3]}"
members 0,1,3
wait_for 20 'changes | grep -qx "2 REMOVED ${hosts[2]}"' || fail "$(changes)"
pkill -KILL -f "^([^ ]*/)?dtfleet --job-dir $JOB "
awaits ".fleet.text ~ ${hosts[2]} goes back after ${hosts[3]}"
some_epochs 10
members 0,1,3
[ "$(event fleet 'goes back after')" -le 2 ] || fail "it is news each time: $(story)"

say "the newest goes, and then who waited for it"
dtctl shrink
members 0,1
size_is 2
awaits '.fleet.text=2 asked for, 2 here'
[ "$(sort -u let_go | wc -l)" = 2 ] || fail "let go: $(cat let_go)"

say "the same names come again, as other machines"
dtctl grow 2
members 0,1,4,5

say "a base host has gone, and comes back as another machine: its place is filled"
dtctl leave "${hosts[1]}" --in 0 >/dev/null
members 0,4,5
sed -i '2s/.*/9/' lives
members 0,4,5,6

say "another machine takes a base host's place: it stays, and the one that it replaced is left and may go"
dtctl replace "${hosts[1]}" "${hosts[2]}"
members 0,4,5
refused "${hosts[2]} is no machine of numbered that could go" dtctl shrink "${hosts[2]}"
wait_for 20 'dtctl shrink "${hosts[1]}" >"$T/shrink.out" 2>&1' || fail "$(output shrink)"
awaits ".fleet.text ~ ${hosts[1]} goes back after ${hosts[3]}"
members 0,4,5
dtctl stop >/dev/null
finished job "$JOB_PID" 30
size_is 4
expect_nothing_left
