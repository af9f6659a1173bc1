// A client of another project: connect-web, with Node's fetch over TLS. Usage: node client.mjs ADDRESS DESCRIPTORS NODE
//
// NODE_EXTRA_CA_CERTS names the site's authority, and RACKWRIGHT_API_KEY is the key of the caller. Code is not generated: the
// services come from DESCRIPTORS, the set of descriptors that the API's server reflection also sends. Prints one JSON object.
import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";

const [address, descriptors, nodeId] = process.argv.slice(2);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const withKey = (next) => (request) => {
    request.header.set("Authorization", `Bearer ${process.env.RACKWRIGHT_API_KEY}`);
    return next(request);
};

/** The clients of all services that are used, with one form of the messages. */
function clients(useBinaryFormat) {
    const transport = createConnectTransport({ baseUrl: address, useBinaryFormat, interceptors: [withKey] });
    const of = (name) => createClient(registry.getService(`rackwright.v1.${name}`), transport);
    return { auth: of("AuthService"), nodes: of("NodeService") };
}

/** The code of the error with which a call ends. */
async function codeOf(call) {
    try {
        await call;
    } catch (error) {
        return Code[ConnectError.from(error).code];
    }
    return "none";
}

async function tour(useBinaryFormat, id) {
    const { auth, nodes } = clients(useBinaryFormat);
    const { member } = await auth.whoAmI({});
    const refused = await codeOf(nodes.getNode({ name: "nodes/absent" }));
    const stop = new AbortController();
    let [isSynced, seen] = [false, ""];
    try {
        for await (const { node, synced } of nodes.watchNodes({}, { signal: stop.signal })) {
            if (synced) {
                isSynced = true;
                const bmc = { address: "https://127.0.0.1:9", username: "admin", password: "guess-this-one" };
                await nodes.enrollNode({ nodeId: id, spec: { bmc }, mutation: { idempotencyKey: `foreign-${id}` } });
            } else if (isSynced && node?.name === `nodes/${id}`) {
                seen = node.name;
                stop.abort();
            }
        }
    } catch (error) {
        if (!stop.signal.aborted) {
            throw error;
        }
    }
    return { member, refused, seen };
}

const json = await tour(false, `${nodeId}-json`);
const binary = await tour(true, `${nodeId}-binary`);
console.log(JSON.stringify({ json, binary }));
