/** `  su11       ###s  4 nodes, uplinks 0-3`: a unit with one character for each node. */
const UNIT = /^(\s*)(\S+)(\s+)([#s.x-]+)(\s.*|)$/;
const KINDS: Record<string, string> = { "#": "node", s: "spare", ".": "free", x: "taken", "-": "out" };
const WORDS: [string, string][] = [
  ["node", "node"],
  ["spare", "spare"],
  ["free", "free"],
  ["taken", "taken by another cluster"],
  ["out", "out of service"],
];

/** A placement as the API draws it in text, with its units as cells. Lines of another form are shown as they are. */
export function PlanPicture({ text }: { text: string }) {
  const lines = text.split("\n").filter((line) => line.trim() !== "" && !line.trim().startsWith("# "));
  if (lines.length === 0) {
    return null;
  }
  return (
    <div class="plan" role="img" aria-label={text}>
      {lines.map((line, index) => (
        <Line key={index} line={line} />
      ))}
      <ul class="plan-legend">
        {WORDS.map(([kind, words]) => (
          <li key={kind}>
            <span class="cell" data-kind={kind} /> {words}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Line({ line }: { line: string }) {
  const [, , name, , cells, rest] = UNIT.exec(line) ?? [];
  if (cells === undefined) {
    return <p class="plan-pod">{line.trim()}</p>;
  }
  return (
    <div class="plan-unit">
      <span class="name">{name}</span>
      <span class="cells">
        {[...cells].map((cell, index) => (
          <span key={index} class="cell" data-kind={KINDS[cell]} />
        ))}
      </span>
      <span class="dim small">{rest?.trim()}</span>
    </div>
  );
}
