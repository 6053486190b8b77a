#!/usr/bin/env bash
# Downloads the CPython that python.txt pins for this machine, and unpacks it for bundle-python.sh.
#
# Usage: fetch-python.sh DIRECTORY
#
# Replaces DIRECTORY by the content of the archive. Fails, and leaves DIRECTORY as it was, unless the archive has the
# pinned SHA-256.
set -euo pipefail

directory=${1:?usage: fetch-python.sh DIRECTORY}
pins=$(dirname "$0")/python.txt
machine=$(uname -m)

if ! pin=$(grep "^$machine " "$pins"); then
  echo "fetch-python.sh: python.txt has no CPython for $machine" >&2
  exit 1
fi
read -r _ digest url <<<"$pin"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! curl --fail --silent --show-error --location --output "$scratch/python.tar.gz" "$url"; then
  echo "fetch-python.sh: cannot download $url. Only the bundled packages need it: \`make packages\` builds the others" >&2
  exit 1
fi
if ! sha256sum --check --status <<<"$digest  $scratch/python.tar.gz"; then
  echo "fetch-python.sh: $url does not have the SHA-256 that python.txt pins" >&2
  exit 1
fi
rm -rf "${directory:?}"
mkdir -p "$directory"
tar --extract --gzip --no-same-owner --strip-components=1 --directory "$directory" --file "$scratch/python.tar.gz"
