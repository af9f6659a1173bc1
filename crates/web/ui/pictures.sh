#!/usr/bin/env bash
# Takes the pictures of the console in README: pages with an invented hall of 300 nodes, in headless Chromium.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=../../../docs/pictures
mkdir -p "$out"
port=$((20000 + RANDOM % 20000))
node dev.mjs --mock --no-login --nodes 300 --port "$port" &
server=$!
profile=$(mktemp -d)
trap 'kill "$server"; rm -rf "$profile"' EXIT
until curl --silent --output /dev/null "http://127.0.0.1:$port/"; do
    kill -0 "$server"
    sleep 0.2
done
for page in fleet:/ node:/nodes/gpu-001 racks:/racks fabric:/fabric; do
    chromium --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --user-data-dir="$profile" --hide-scrollbars --force-dark-mode \
        --blink-settings=preferredColorScheme=0 --window-size=1440,900 --virtual-time-budget=15000 \
        --screenshot="$PWD/$out/${page%%:*}.png" "http://127.0.0.1:$port${page#*:}"
done
