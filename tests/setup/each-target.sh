#!/usr/bin/env bash
# Makes targets one after the other, and ends with a table: target, result and time. Fails if one of them failed.
#
# A target that fails does not stop the others.
set -uo pipefail

table="" status=0
for target; do
  echo "each-target: $target"
  start=$SECONDS result=passed
  make --no-print-directory "$target" </dev/null || { result=FAILED; status=1; }
  table+=$(printf '%-20s %-8s %3d:%02d min' "$target" $result $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)))$'\n'
done
printf '%s' "$table"
exit $status
