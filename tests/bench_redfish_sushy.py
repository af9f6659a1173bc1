"""The other half of bench-redfish.sh: walks BMCs and cycles their power by sushy, and counts.

Usage: bench_redfish_sushy.py SECONDS, with the BMCs on standard input, and prints what
crates/redfish/src/bin/bench_redfish.rs does. Several BMCs are worked on by a thread each.
"""

import json
import resource
import socket
import ssl
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import sushy

CLOSED = ("/$metadata", "/JsonSchemas", "/Registries", "/SessionService/Sessions/", "/TaskService/Tasks/", "/Entries/")
PATIENCE_S = 60


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def connect(bmc):
    """The certificate is trusted as a file: sushy knows no fingerprints."""
    where = urlsplit(bmc["address"])
    context = ssl._create_unverified_context()
    with socket.create_connection((where.hostname, where.port)) as plain, context.wrap_socket(plain) as wrapped:
        certificate = ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True))
    trusted = tempfile.NamedTemporaryFile("w", suffix=".pem")
    trusted.write(certificate)
    trusted.flush()
    client = sushy.Sushy(bmc["address"], username=bmc["username"], password=bmc["password"], verify=trusted.name)
    (system,) = client.get_system_collection().get_members()
    if system.power_state != sushy.PowerState.ON:
        system.reset_system(sushy.ResetType.ON)
        wait(system, sushy.PowerState.ON)
    return client, system, trusted


def meet(value, seen, found):
    if isinstance(value, dict):
        link = value.get("@odata.id")
        if isinstance(link, str):
            link = link.split("#")[0].rstrip("/")
            closed = any(part in link for part in CLOSED)
            if link.startswith("/redfish/v1/") and not closed and link not in seen:
                seen.add(link)
                found.append(link)
        for inner in value.values():
            meet(inner, seen, found)
    elif isinstance(value, list):
        for inner in value:
            meet(inner, seen, found)


def walk(client):
    seen, found, requests = set(), deque(["/redfish/v1"]), 0
    while found:
        requests += 1
        meet(client._conn.get(found.popleft()).json(), seen, found)
    return requests


def wait(system, wanted):
    deadline = time.monotonic() + PATIENCE_S
    pause = 0.25
    while True:
        system.refresh(force=True)
        if system.power_state == wanted:
            return
        if time.monotonic() > deadline:
            sys.exit(f"power is {system.power_state}, not {wanted}, after {PATIENCE_S} s")
        time.sleep(pause)
        pause = min(pause * 2, 5)


def cycle(system):
    for reset, wanted in ((sushy.ResetType.FORCE_OFF, sushy.PowerState.OFF), (sushy.ResetType.ON, sushy.PowerState.ON)):
        system.reset_system(reset)
        wait(system, wanted)


def measure(work, clients, span):
    end = time.monotonic() + span

    def of_one(client):
        done = []
        while time.monotonic() < end:
            done.append(work(client))
        return done

    cpu, began = cpu_s(), time.monotonic()
    with ThreadPoolExecutor(len(clients)) as pool:
        done = [result for results in pool.map(of_one, clients) for result in results]
    wall, cpu = time.monotonic() - began, cpu_s() - cpu
    requests = sum(done) if done and done[0] is not None else None
    return {"runs": len(done), "requests": requests, "wall_s": wall, "cpu_s": cpu}


def main():
    span = float(sys.argv[1])
    clients = [connect(bmc) for bmc in json.load(sys.stdin)]
    walked = measure(lambda client: walk(client[0]), clients, span)
    cycled = measure(lambda client: cycle(client[1]), clients, span)
    print(json.dumps({"bmcs": len(clients), "walk": walked, "cycle": cycled}))


if __name__ == "__main__":
    main()
