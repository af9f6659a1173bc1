/** A text of the API for people: the parts between backquotes are code. */
export function Prose({ text }: { text: string | undefined }) {
  const parts = (text ?? "").split("`");
  return <>{parts.map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}
