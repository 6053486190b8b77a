#!/usr/bin/env bash
# Builds the source distribution and the wheel into dist/, with the same bytes for the same source.
#
# Usage: build-python.sh PYTHON
#
# PYTHON has the locked setuptools of requirements/build.txt. SOURCE_DATE_EPOCH is the time of all files; without it,
# the time of the last commit.
set -euo pipefail

python=${1:?usage: build-python.sh PYTHON}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
umask 022
mkdir -p dist

# The build leaves build/ and *.egg-info behind. A file of an earlier build in build/lib would enter the wheel.
rm -rf build/lib build/python build/bdist.* ./*.egg-info
mkdir -p build/python
"$python" -c 'import setuptools.build_meta as backend; backend.build_sdist("build/python"); backend.build_wheel("dist")' \
  >build/python/log 2>&1 || { cat build/python/log >&2; exit 1; }

for archive in build/python/*.tar.gz; do
  tar --extract --gzip --file "$archive" --directory build/python
  name=$(basename "$archive" .tar.gz)
  # setuptools leaves out links to directories.
  git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "build/python/$name"
  # setuptools dates the files that it generates, and their directories, with the time of the build.
  tar --create --directory build/python --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --mode='u+rw,go=u,go-w' "$name" | gzip --no-name --best >"dist/$name.tar.gz"
done
rm -rf build/python ./*.egg-info
