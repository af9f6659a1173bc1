#!/bin/sh
# Makes a virtual environment of Python with what a requirements file names, and prints the path of its bin folder.
# Usage: venv.sh DIRECTORY REQUIREMENTS [MODULE]
# With MODULE the environment sees the packages of the distribution's Python, which has to have that module.
# A complete environment is reused; a half-made one, or one with other versions, is made anew.
set -eu
dir=$1
wanted=$2
module=${3:-}
mkdir -p "$(dirname -- "$dir")"
# Several tests may come here at once.
exec 9>"$dir.lock"
flock 9
# The environment's python is a link: without its target the whole is of no use.
if ! cmp -s "$wanted" "$dir/complete.txt" || ! [ -x "$dir/bin/python" ]; then
    rm -rf "$dir"
    if [ -z "$module" ]; then
        python3 -m venv "$dir" >&2
    else
        # Another python3 may be first in the path and not see what the distribution installs.
        if ! /usr/bin/python3 -c "import $module" 2>/dev/null; then
            printf '%s\n' "venv.sh: error: /usr/bin/python3 has no module $module: install the package python3-$module" >&2
            exit 1
        fi
        /usr/bin/python3 -m venv --system-site-packages "$dir" >&2
    fi
    "$dir/bin/pip" install --quiet --disable-pip-version-check --no-input --requirement "$wanted" >&2
    cp "$wanted" "$dir/complete.txt"
fi
printf '%s\n' "$dir/bin"
