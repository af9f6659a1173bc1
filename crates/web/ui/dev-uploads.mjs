// Uploads of the made-up world. Their bytes are counted and thrown away.
import { iso, versionOf } from "./dev-world.mjs";

const PATH = /^\/v1\/(uploads\/[^/:]+):write\?offset=(\d+)$/;

export class Uploads {
  constructor(world, images) {
    Object.assign(this, { world, images, all: new Map() });
  }

  calls(refuse) {
    const find = (name) => this.all.get(name) ?? refuse("not_found", `${name} does not exist`);
    return {
      "ImageService/StartUpload": ({ imageId, sizeBytes, sha256, mutation }) => {
        const name = `uploads/${mutation.idempotencyKey}`;
        const upload = this.all.get(name) ?? { name, receivedBytes: "0", sizeBytes, imageId, sha256 };
        this.all.set(name, upload);
        return upload;
      },
      "ImageService/GetUpload": ({ name }) => find(name),
      "ImageService/FinishUpload": ({ name }) => this.finish(find(name)),
    };
  }

  finish({ imageId, sizeBytes, sha256 }) {
    const operation = {
      name: `operations/import-${this.world.operations.length}`,
      kind: "import-image",
      target: `images/${imageId}`,
      requestedBy: "ann",
      createTime: iso(Date.now()),
      progress: { step: "cutting the file into chunks", percent: 40, logicalBytes: "1", logicalBytesTotal: sizeBytes },
      metadata: { resourceVersion: "1" },
    };
    this.world.operations.unshift(operation);
    setTimeout(() => {
      Object.assign(operation, { done: true, endTime: iso(Date.now()) });
      const name = versionOf(imageId);
      const version = { name, createTime: iso(Date.now()), logicalBytes: sizeBytes, sourceSha256: sha256 };
      this.images.push({ name: `images/${imageId}`, versions: [version], metadata: {} });
    }, 5_000).unref();
    return operation;
  }

  /** Answers a `PUT` of bytes slowly, so that the progress is seen. */
  write(request, response) {
    const [, name, offset] = PATH.exec(request.url) ?? [];
    const upload = this.all.get(name);
    const answer = (status, body) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (upload === undefined || offset !== upload.receivedBytes) {
      request.resume();
      const message = upload ? `continue at ${upload.receivedBytes}` : "the upload does not exist";
      const [code, status] = upload ? [400, "INVALID_ARGUMENT"] : [404, "NOT_FOUND"];
      answer(code, { error: { code, status, message } });
      return;
    }
    request.on("data", ({ length }) => {
      upload.receivedBytes = String(Number(upload.receivedBytes) + length);
    });
    request.on("end", () => setTimeout(() => answer(200, upload), 400));
  }
}
