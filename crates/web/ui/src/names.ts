/** `gpu-001` of `nodes/gpu-001`; other names stay whole. */
export function short(collection: string, name: string | undefined): string {
  const prefix = `${collection}/`;
  const text = name ?? "";
  return text.startsWith(prefix) ? text.slice(prefix.length) : text;
}

/** The last part of a name. */
export function last(name: string | undefined): string {
  const text = name ?? "";
  return text.slice(text.lastIndexOf("/") + 1);
}

/** `b3-` and 12 hexadecimal digits. */
const DIGEST = 15;

/** `debian@b3-0123456789ab` of `images/debian/versions/b3-…`, as the CLI. */
export function imageShort(name: string | undefined): string {
  const [image, digest] = short("images", name).split("/versions/");
  if (digest === undefined) {
    return image?.startsWith("b3-") ? image.slice(0, DIGEST) : (image ?? "");
  }
  return `${image}@${digest.slice(0, DIGEST)}`;
}

/** A word for a shell: quoted where the shell needs it. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9@%+=:,./_-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** `k=v k=v`, sorted. */
export function labelsText(labels: Record<string, string> | undefined): string {
  return Object.entries(labels ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .sort()
    .join(" ");
}
