#!/usr/bin/env bash
# bench-redfish.sh: our Redfish client beside sushy, OpenStack's, on the same BMCs of rackwright-sim in the same run.
#
# Both read everything that a BMC's links lead to, by the same rule, and cycle its power with both ends read back; over
# TLS, one BMC first, then BMCS at once. Rounds alternate. Prints a line of JSON for each run, and last the ratios of the
# rounds' medians: of sushy's CPU by request and by power cycle over ours, and of our walks and power cycles a second over
# sushy's.
#
# Settings (environment):
#   PROFILE       what the machines are: see `rackwright-sim --help` (default: instant, which answers at once)
#   ROUNDS        rounds (default: 3)
#   SECONDS_EACH  seconds of walks, and of power cycles, of a run (default: 5)
#   BMCS          BMCs at once (default: 50)
#   PROGRAMS      folder of rackwright-bench-redfish and rackwright-sim (default: target/release)
set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PROFILE=${PROFILE:-instant} ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-5} BMCS=${BMCS:-50}
PROGRAMS=${PROGRAMS:-$REPO/target/release}

die() {
    printf 'bench-redfish: error: %s\n' "$*" >&2
    exit 1
}

ours=$PROGRAMS/rackwright-bench-redfish
sim=$PROGRAMS/rackwright-sim
for program in "$ours" "$sim"; do
    [ -x "$program" ] || die "$program is missing: 'make bench-redfish' builds it"
done
python=$("$REPO/tests/venv.sh" "$REPO/target/venv-redfish" "$REPO/crates/sim/tests/redfish-requirements.txt")/python
found=$(mktemp -d)
# The simulator ends when its input, this descriptor, closes.
mkfifo "$found/alive"
"$sim" --nodes "$BMCS" --profile "$PROFILE" --listen 0.0.0.0:0 --ssh-listen 0.0.0.0:0 --format json \
    --output "$found/described" <"$found/alive" >"$found/ready" 2>"$found/words" &
served=$!
exec 9>"$found/alive"
trap 'exec 9>&-; wait "$served" || true; rm -rf "$found"' EXIT
# Its standard output ends as soon as all BMCs answer, and the description is written before.
while [ ! -s "$found/described" ]; do
    kill -0 "$served" 2>/dev/null || die "rackwright-sim has ended: $(cat "$found/words")"
    sleep 0.1
done
"$python" - "$found" <<'PYTHON'
import json, sys

nodes = json.load(open(sys.argv[1] + "/described"))["nodes"]
json.dump([node["bmc"] for node in nodes[:1]], open(sys.argv[1] + "/one", "w"))
json.dump([node["bmc"] for node in nodes], open(sys.argv[1] + "/all", "w"))
PYTHON

run() { # NAME FILE COMMAND...
    local name=$1 file=$2
    shift 2
    "$@" "$SECONDS_EACH" <"$found/$file" >"$found/line" || die "$name failed"
    "$python" -c 'import json, sys; print(json.dumps({"client": sys.argv[1], **json.load(sys.stdin)}))' "$name" <"$found/line" |
        tee -a "$found/lines"
}
for _ in $(seq "$ROUNDS"); do
    for file in one all; do
        run rackwright "$file" "$ours"
        run sushy "$file" "$python" "$REPO/tests/bench_redfish_sushy.py"
    done
done
"$python" - "$found/lines" "$PROFILE" <<'PYTHON'
import json, statistics, sys

lines = [json.loads(line) for line in open(sys.argv[1])]
for bmcs in sorted({line["bmcs"] for line in lines}):
    def median(client, figure):
        return statistics.median(figure(line) for line in lines if line["client"] == client and line["bmcs"] == bmcs)

    of = {
        "walks_per_s": lambda line: line["walk"]["runs"] / line["walk"]["wall_s"],
        "cpu_us_per_request": lambda line: line["walk"]["cpu_s"] * 1e6 / line["walk"]["requests"],
        "cycles_per_s": lambda line: line["cycle"]["runs"] / line["cycle"]["wall_s"],
        "cpu_ms_per_cycle": lambda line: line["cycle"]["cpu_s"] * 1e3 / line["cycle"]["runs"],
    }
    requests = {line["walk"]["requests"] // line["walk"]["runs"] for line in lines if line["bmcs"] == bmcs}
    if len(requests) != 1:
        sys.exit(f"bench-redfish: error: the clients' walks differ: {sorted(requests)} requests")
    answer = {"profile": sys.argv[2], "bmcs": bmcs, "requests_per_walk": requests.pop()}
    for name, figure in of.items():
        ours, theirs = median("rackwright", figure), median("sushy", figure)
        ratio = theirs / ours if name.startswith("cpu") else ours / theirs
        answer |= {name: round(ours, 2), "sushy_" + name: round(theirs, 2), name + "_ratio": round(ratio, 1)}
    print(json.dumps(answer))
PYTHON
