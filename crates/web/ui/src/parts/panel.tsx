import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { Copy } from "./text";

interface Props {
  title: string;
  /** Beside the title: a number, a link, a control. */
  side?: ComponentChildren;
  children: ComponentChildren;
  /** Content goes to the edges: for tables. */
  isFlush?: boolean;
  level?: 2 | 3;
  id?: string;
}

export function Panel({ title, side, children, isFlush = false, level = 2, id }: Props) {
  const titleId = useId();
  const Heading = level === 2 ? "h2" : "h3";
  return (
    <section class={isFlush ? "panel flush" : "panel"} aria-labelledby={titleId} id={id}>
      <div class="panel-head">
        <Heading id={titleId}>{title}</Heading>
        {side !== undefined && <div class="panel-side">{side}</div>}
      </div>
      <div class="panel-body">{children}</div>
    </section>
  );
}

/** The commands that do the same as the page. */
export function AsCli({ commands }: { commands: string[] }) {
  return (
    <section class="as-cli" aria-label="As CLI">
      <span class="as-cli-title">as CLI</span>
      {commands.map((command) => (
        <Copy key={command} text={command} label="Copy the command" />
      ))}
    </section>
  );
}

/** Names with their values. */
export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function PageHead({
  title,
  children,
  side,
}: {
  title: ComponentChildren;
  children?: ComponentChildren;
  side?: ComponentChildren;
}) {
  return (
    <div class="page-head">
      <div>
        <h1>{title}</h1>
        {children && <div class="page-sub">{children}</div>}
      </div>
      {side && <div class="page-side">{side}</div>}
    </div>
  );
}
