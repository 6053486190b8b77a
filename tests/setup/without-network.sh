#!/usr/bin/env bash
# Runs a command in a network namespace that only has a loopback interface.
#
# So a test that needs the network fails on the developer's machine. When the kernel allows no new namespace, the
# command runs with the network, and a message says so.
set -euo pipefail

isolate=(unshare --net)
[ "$(id -u)" -eq 0 ] || isolate+=(--user --map-root-user)
if "${isolate[@]}" ip link set lo up 2>/dev/null; then
  # shellcheck disable=SC2016 # "$@" is for the inner shell
  exec "${isolate[@]}" sh -c 'ip link set lo up && exec "$@"' sh "$@"
fi
echo "without-network: cannot create a network namespace; the command runs with the network" >&2
exec "$@"
