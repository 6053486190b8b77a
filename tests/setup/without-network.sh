#!/usr/bin/env bash
# Runs a command in a network namespace that has a loopback interface and nothing else.
#
# A test that needs the network then fails here, on the developer's machine, instead of being slow or flaky elsewhere.
# Where the kernel allows no new namespace, the command runs as it is, and that is said.
set -euo pipefail

isolate=(unshare --net)
[ "$(id -u)" -eq 0 ] || isolate+=(--user --map-root-user)
if "${isolate[@]}" ip link set lo up 2>/dev/null; then
  # shellcheck disable=SC2016 # "$@" is for the inner shell
  exec "${isolate[@]}" sh -c 'ip link set lo up && exec "$@"' sh "$@"
fi
echo "without-network: no network namespace to be had here, so the network is not taken away" >&2
exec "$@"
