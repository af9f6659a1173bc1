"""A client of another project: connectrpc. Usage: python client.py ADDRESS AUTHORITY NODE

AUTHORITY is the file with the site's authority, and RACKWRIGHT_API_KEY is the key of the caller. The code that protoc-gen-py and
protoc-gen-connectrpc have generated is the package `generated` on PYTHONPATH. Prints one JSON object.
"""

import json
import os
import pathlib
import sys

from connectrpc.codec import proto_binary_codec, proto_json_codec
from connectrpc.errors import ConnectError
from pyqwest import SyncClient, SyncHTTPTransport
from generated.rackwright.v1.auth_connect import AuthServiceClientSync
from generated.rackwright.v1.auth_pb import WhoAmIRequest
from generated.rackwright.v1.common_pb import Mutation
from generated.rackwright.v1.nodes_connect import NodeServiceClientSync
from generated.rackwright.v1.nodes_pb import Bmc, EnrollNodeRequest, GetNodeRequest, NodeSpec, WatchNodesRequest

KEY = {"authorization": f"Bearer {os.environ['RACKWRIGHT_API_KEY']}"}


def code_of(call):
    """The code of the error with which a call ends."""
    try:
        call()
    except ConnectError as error:
        return error.code.name
    return "none"


def enrol(nodes, node_id):
    bmc = Bmc(address="https://127.0.0.1:9", username="admin", password="guess-this-one")
    mutation = Mutation(idempotency_key=f"foreign-{node_id}")
    nodes.enroll_node(EnrollNodeRequest(node_id=node_id, spec=NodeSpec(bmc=bmc), mutation=mutation), headers=KEY)


def tour(address, http_client, codec, node_id):
    # This client compresses its requests if nothing tells it otherwise.
    auth = AuthServiceClientSync(address, codec=codec, http_client=http_client)
    nodes = NodeServiceClientSync(address, codec=codec, http_client=http_client)
    member = auth.who_am_i(WhoAmIRequest(), headers=KEY).member
    refused = code_of(lambda: nodes.get_node(GetNodeRequest(name="nodes/absent"), headers=KEY))
    is_synced, seen = False, ""
    for message in nodes.watch_nodes(WatchNodesRequest(), headers=KEY):
        if message.synced:
            is_synced = True
            enrol(nodes, node_id)
        elif is_synced and message.node is not None and message.node.name == f"nodes/{node_id}":
            seen = message.node.name
            break
    return {"member": member, "refused": refused, "seen": seen}


def main():
    address, authority, node_id = sys.argv[1:]
    transport = SyncHTTPTransport(tls_ca_cert=pathlib.Path(authority).read_bytes())
    http_client = SyncClient(transport)
    codecs = {"json": proto_json_codec(), "binary": proto_binary_codec()}
    print(json.dumps({name: tour(address, http_client, codec, f"{node_id}-{name}") for name, codec in codecs.items()}))


main()
