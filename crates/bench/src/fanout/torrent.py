"""An agent that takes a file by BitTorrent, for the comparison in `rackwright-bench fanout`. Input and output are those of
the agents: see agent.rs."""

import json
import os
import sys
import time

import libtorrent

order = json.loads(sys.stdin.readline())
port = order["port"]


def say(event):
    print(json.dumps(event), flush=True)


def torrent():
    files = libtorrent.file_storage()
    libtorrent.add_files(files, order["noise"])
    # A piece for each chunk.
    made = libtorrent.create_torrent(files, files.total_size() // order["chunks"])
    libtorrent.set_piece_hashes(made, os.path.dirname(order["noise"]))
    return libtorrent.torrent_info(made.generate())


session = libtorrent.session(
    {
        "listen_interfaces": f"{order['address']}:{port}",
        "enable_dht": False,
        "enable_lsd": False,
        "enable_upnp": False,
        "enable_natpmp": False,
        # Its own transport yields to TCP.
        "enable_outgoing_utp": False,
        "enable_incoming_utp": False,
        "close_redundant_connections": False,
        "connection_speed": 100,
        "alert_mask": libtorrent.alert.category_t.status_notification | libtorrent.alert.category_t.error_notification,
    }
)
info = torrent()


def add(folder, is_seed):
    options = {"ti": info, "save_path": folder}
    if is_seed:
        options["flags"] = libtorrent.torrent_flags.seed_mode
    handle = session.add_torrent(options)
    for other in order["others"]:
        handle.connect_peer((other, port))
    return handle


if order["folder"] is None:
    add(os.path.dirname(order["noise"]), True)
else:
    os.makedirs(order["folder"])
say("ready")

for line in sys.stdin:
    if line.strip() == "go":
        begun = time.monotonic()
        handle = add(order["folder"], False)
        told = begun
        while not handle.status().is_seeding:
            session.wait_for_alert(50)
            for alert in session.pop_alerts():
                if isinstance(alert, libtorrent.torrent_error_alert):
                    raise SystemExit(alert.message())
            # Peers that did not listen yet are asked again.
            if time.monotonic() - told > 5:
                told = time.monotonic()
                for other in order["others"]:
                    handle.connect_peer((other, port))
        seconds = time.monotonic() - begun
        end = {"seconds": seconds, "error": "", "from_servers": 0, "from_rack": 0, "from_other_racks": 0}
        say({"ended": end | {"served": 0, "step": "done"}})
    elif line.strip() == "check":
        with open(order["noise"], "rb") as wanted, open(os.path.join(order["folder"], "noise"), "rb") as found:
            size = info.piece_length()
            say({"checked": sum(wanted.read(size) == found.read(size) for _ in range(order["chunks"]))})
