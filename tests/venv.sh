#!/bin/sh
# Makes a virtual environment of Python with what a requirements file names, and prints the path of its bin folder.
# Usage: venv.sh DIRECTORY REQUIREMENTS
# A complete environment is reused; a half-made one, or one with other versions, is made anew.
set -eu
dir=$1
wanted=$2
mkdir -p "$(dirname -- "$dir")"
# Several tests may come here at once.
exec 9>"$dir.lock"
flock 9
# The environment's python is a link: without its target the whole is of no use.
if ! cmp -s "$wanted" "$dir/complete.txt" || ! [ -x "$dir/bin/python" ]; then
    rm -rf "$dir"
    python3 -m venv "$dir" >&2
    "$dir/bin/pip" install --quiet --disable-pip-version-check --no-input --requirement "$wanted" >&2
    cp "$wanted" "$dir/complete.txt"
fi
printf '%s\n' "$dir/bin"
