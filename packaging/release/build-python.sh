#!/usr/bin/env bash
# Builds the source distribution and the wheel into dist/, with the same bytes for the same source.
#
# Usage: build-python.sh PYTHON
#
# PYTHON has the locked setuptools of requirements/build.txt. SOURCE_DATE_EPOCH is the time of all files; without it,
# the time of the last commit.
set -euo pipefail

python=$(realpath --no-symlinks "${1:?usage: build-python.sh PYTHON}")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
umask 022
mkdir -p dist

# The build leaves build/ and *.egg-info behind. A file of an earlier build in build/lib would enter the archive.
rm -rf build/lib build/python build/bdist.* ./*.egg-info
mkdir -p build/python
log=$PWD/build/python/log
# Runs a function of setuptools in a directory.
call() { (cd "$1" && "$python" -c "import setuptools.build_meta as backend; backend.$2") >>"$log" 2>&1 || { cat "$log" >&2; exit 1; }; }
call . 'build_sdist("build/python")'

archive=$(echo build/python/*.tar.gz)
tar --extract --gzip --file "$archive" --directory build/python
name=$(basename "$archive" .tar.gz)
# setuptools leaves out links to directories.
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "build/python/$name"
# setuptools dates the files that it generates, and their directories, with the time of the build.
tar --create --directory build/python --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
  --numeric-owner --mode='u+rw,go=u,go-w' "$name" | gzip --no-name --best >"dist/$name.tar.gz"

# The wheel has the modes of some files of its source. Those of a checkout depend on the umask; those of the archive do not.
mkdir build/python/wheel
tar --extract --gzip --file "dist/$name.tar.gz" --directory build/python/wheel
call "build/python/wheel/$name" "build_wheel('$PWD/dist')"
rm -rf build/python ./*.egg-info
