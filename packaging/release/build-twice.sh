#!/usr/bin/env bash
# Builds the committed source twice, in two clones, into dist/. Fails unless both builds have the same bytes.
#
# Usage: build-twice.sh VENV TARGET...
#
# Each TARGET of the Makefile writes its artifacts into dist/ of the clone. Both builds use the programs of VENV. The second
# build has another directory, user, home, time, time zone, language and umask. Targets that mount systems keep their user, root.
set -euo pipefail

venv=$(realpath "${1:?usage: build-twice.sh VENV TARGET...}")
shift
if [ -n "$(git status --porcelain)" ]; then
  echo "dist: there are uncommitted changes, which would not be in the artifacts: commit them first" >&2
  exit 1
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache}

rm -rf build/dist dist
first=build/dist/first
elsewhere=$(mktemp --directory /var/tmp/node-attestation.XXXXXX)
trap 'rm -rf "$elsewhere"' EXIT
second=$elsewhere/another/place
mkdir "$elsewhere/home"

(umask 022 && git clone --quiet . "$first")
(umask 027 && git clone --quiet . "$second")
ln -s "$venv" "$first/.venv"
ln -s "$venv" "$second/.venv"

# Builds a target in a clone. The words before it run make.
build() {
  local clone=$1 target=$2
  shift 2
  # --old-file: the clone uses the virtual environment as it is.
  "$@" make --directory "$clone" --no-print-directory --old-file=.venv/.setup-done "$target"
}

echo "dist: first build of $*"
umask 022
for target in "$@"; do build "$first" "$target"; done

echo "dist: second build of $*"
umask 027
other=(env "HOME=$elsewhere/home" USER=other LOGNAME=other TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 faketime -f +30h)
for target in "$@"; do
  case $target in
    image | bundled | arm64) user=() ;;
    *) user=(unshare --user --map-user=1234 --map-group=1234) ;;
  esac
  build "$second" "$target" "${user[@]}" "${other[@]}"
done

if ! diff --recursive --brief "$first/dist" "$second/dist"; then
  cp --recursive "$second/dist" build/dist/second
  echo "dist: the two builds differ: see build/dist/first/dist and build/dist/second" >&2
  exit 1
fi
mv "$first/dist" dist
chmod --recursive u=rwX,go=rX dist
rm -rf build/dist
