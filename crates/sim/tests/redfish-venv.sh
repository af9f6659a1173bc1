#!/bin/sh
# Makes the virtual environment that holds the Redfish validators and sushy, and prints the path of its bin folder.
# Usage: redfish-venv.sh DIRECTORY
# A complete environment is reused; a half-made one, or one with other versions, is made anew.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
dir=$1
wanted=$here/redfish-requirements.txt
mkdir -p "$(dirname -- "$dir")"
# Several tests may come here at once.
exec 9>"$dir.lock"
flock 9
if ! cmp -s "$wanted" "$dir/complete.txt" || ! [ -x "$dir/bin/rf_service_validator" ]; then
    rm -rf "$dir"
    python3 -m venv "$dir" >&2
    "$dir/bin/pip" install --quiet --disable-pip-version-check --no-input --requirement "$wanted" >&2
    cp "$wanted" "$dir/complete.txt"
fi
printf '%s\n' "$dir/bin"
