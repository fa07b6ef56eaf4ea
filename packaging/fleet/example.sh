#!/bin/bash
# A provider of machines for `dtlaunch --fleet './example.sh FILE'` (provider.md). FILE has a line for each machine:
# HOST, and pending or ending behind it where it is not ready. A machine that is let go loses its line.
file=$1
# field NAME: of the request, a text or a number.
field() { [[ $request =~ \"$1\":\ ?\"?([^\",}]*) ]] && printf %s "${BASH_REMATCH[1]}"; }
while IFS= read -r request; do
  answer='"ok":true'
  case $(field "do") in
    hello) answer+=',"version":1,"name":"example","marks":false,"can":["let_go"],"every_s":5' ;;
    list)
      machines=
      while read -r host state; do
        [ -z "$host" ] || machines+="${machines:+,}{\"id\":\"$host\",\"host\":\"$host\",\"state\":\"${state:-ready}\"}"
      done <"$file" && answer+=",\"machines\":[$machines]" ||
        answer="\"ok\":false,\"kind\":\"away\",\"error\":\"$file cannot be read\""
      ;;
    mark | confirm) ;;
    let_go) sed -i "/^$(field id)\( \|$\)/d" "$file" ;;
    *) answer='"ok":false,"kind":"wrong","error":"no such request"' ;;
  esac
  echo "{\"n\":$(field n),$answer}"
done
