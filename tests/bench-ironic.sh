#!/usr/bin/env bash
# bench-ironic.sh: the life of N nodes by Rackwright and by OpenStack Ironic, one behind the other on this computer.
#
# Prints the JSON of each, then a line with the ratios: the alternative's CPU seconds of a node over ours (the control plane's
# own, from enrolment to release), and our deploys a second over the alternative's. Ironic drives fake BMCs over plain HTTP
# and simulated agents without TLS; ours are with TLS, mutual for agents, and each machine is validated over SSH.
#
# Settings (environment):
#   RACKWRIGHT_PEERS  folder that holds ironic/bench_ironic.sh: a program that takes N, MODE, DB, POWER_DELAY, NO_PBKDF2 and VENV,
#                     installs Ironic from PyPI into VENV, and prints JSON with `cpu_s` and `phases`
#   N                 nodes (default: 50)
set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
N=${N:-50}

die() {
    printf 'bench-ironic: error: %s\n' "$*" >&2
    exit 1
}

[ -n "${RACKWRIGHT_PEERS:-}" ] || die "RACKWRIGHT_PEERS names no folder; $0 says what has to be in it"
ironic=$RACKWRIGHT_PEERS/ironic/bench_ironic.sh
[ -r "$ironic" ] || die "$ironic is not there"
[ -x "$REPO/target/release/rackwright-bench" ] || die "target/release/rackwright-bench is missing: 'make bench-ironic' builds it"
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
"$REPO/target/release/rackwright-bench" fleet --nodes "$N" | tee "$found/ours"
mkdir -p "$REPO/target"
N=$N MODE=direct DB=sqlite POWER_DELAY=0 NO_PBKDF2=1 VENV=$REPO/target/venv-ironic bash "$ironic" | tee "$found/ironic"
python3 - "$found/ours" "$found/ironic" <<'PYTHON'
import json, sys

ours = {line["phase"]: line for line in map(json.loads, open(sys.argv[1]))}
ironic = json.loads(open(sys.argv[2]).read().splitlines()[-1])
nodes = ours["total"]["nodes"]
mine, theirs = ours["total"]["control_cpu_s"] / nodes, ironic["cpu_s"] / nodes
deploys, their_deploys = ours["deploy"]["nodes_per_s"], ironic["phases"]["deploy"]["nodes_per_s"]
print(json.dumps({
    "nodes": nodes,
    "control_cpu_ms_per_node": round(mine * 1e3, 2),
    "ironic_cpu_ms_per_node": round(theirs * 1e3, 2),
    "cpu_ratio": round(theirs / mine, 1),
    "deploys_per_s": round(deploys, 2),
    "ironic_deploys_per_s": their_deploys,
    "deploys_ratio": round(deploys / their_deploys, 1),
}))
PYTHON
