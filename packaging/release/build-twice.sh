#!/usr/bin/env bash
# Builds the committed source twice, in two clones, into dist/. Fails unless both builds have the same bytes.
#
# Usage: build-twice.sh VENV TARGET...
#
# Each TARGET of the Makefile writes its artifacts into dist/ of the clone. Both builds use the programs of VENV.
set -euo pipefail

venv=$(realpath "${1:?usage: build-twice.sh VENV TARGET...}")
shift
if [ -n "$(git status --porcelain)" ]; then
  echo "dist: there are uncommitted changes, which would not be in the artifacts: commit them first" >&2
  exit 1
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022

rm -rf build/dist dist
for build in first second; do
  echo "dist: $build build of $*"
  git clone --quiet . "build/dist/$build"
  ln -s "$venv" "build/dist/$build/.venv"
  # --old-file: the clone uses the virtual environment as it is.
  make --directory "build/dist/$build" --no-print-directory --old-file=.venv/.setup-done "$@"
done
if ! diff --recursive --brief build/dist/first/dist build/dist/second/dist; then
  echo "dist: the two builds differ; both are in build/dist" >&2
  exit 1
fi
mv build/dist/first/dist dist
rm -rf build/dist
