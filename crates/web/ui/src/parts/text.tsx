import { useState } from "preact/hooks";
import { hasPage } from "../pages-known";
import { link } from "../router";
import { age, duration, everyHalfMinute, everySecond, millis, stamp } from "../time";
import { Icon } from "./icon";

/** `3m ago`, with the exact time on hover. */
export function Ago({ time, bare = false }: { time: string | number | undefined; bare?: boolean }) {
  const at = typeof time === "number" ? time : millis(time);
  if (Number.isNaN(at)) {
    return <span class="dim">unknown</span>;
  }
  const isFresh = Date.now() - at < 125_000;
  const now = isFresh ? everySecond.value : Math.max(everyHalfMinute.value, at);
  const iso = new Date(at).toISOString();
  const text = age((now - at) / 1_000);
  return (
    <time dateTime={iso} title={`${stamp(iso)} (here ${new Date(at).toLocaleString()})`}>
      {bare ? text : `${text} ago`}
    </time>
  );
}

/** The time that has passed since then, counting. */
export function Elapsed({ since }: { since: string | undefined }) {
  const at = millis(since);
  if (Number.isNaN(at)) {
    return <span class="dim">unknown</span>;
  }
  const seconds = (everySecond.value - at) / 1_000;
  return (
    <time dateTime={new Date(at).toISOString()} title={stamp(since)}>
      {seconds < 60 ? `${Math.max(0, Math.floor(seconds))} s` : duration(seconds)}
    </time>
  );
}

/** `in 12m`, or how long ago it was. */
export function Until({ time }: { time: string | undefined }) {
  const at = millis(time);
  if (Number.isNaN(at)) {
    return <span class="dim">unknown</span>;
  }
  const left = (at - everySecond.value) / 1_000;
  return (
    <time dateTime={new Date(at).toISOString()} title={stamp(time)}>
      {left >= 0 ? `in ${age(left)}` : `${age(-left)} ago`}
    </time>
  );
}

/** A name or digest that a click copies. */
export function Copy({ text, shown = text, label = "Copy" }: { text: string; shown?: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      window.setTimeout(() => setCopied(false), 1_500);
    } catch {
      window.prompt("Copy this text", text);
    }
  };
  return (
    <span class="copy">
      <code title={shown === text ? undefined : text}>{shown}</code>
      <button type="button" class="icon-button" onClick={copy} aria-label={`${label}: ${text}`} title={label}>
        <Icon name={isCopied ? "check" : "copy"} />
      </button>
      <span class="sr" role="status">
        {isCopied ? "copied" : ""}
      </span>
    </span>
  );
}

export function NodeLink({ id }: { id: string }) {
  return (
    <a class="name" href={`/nodes/${encodeURIComponent(id)}`}>
      {id}
    </a>
  );
}

/** A resource ("clusters/alpha"), as a link if the console has a page for it. */
export function ResourceLink({ name, shown }: { name: string | undefined; shown?: string }) {
  const text = name ?? "";
  const words = shown ?? text.slice(text.indexOf("/") + 1);
  const path = `/${text.split("/").map(encodeURIComponent).join("/")}`;
  if (text === "") {
    return <Dash />;
  }
  return hasPage(path) ? (
    <a class="name" href={path}>
      {words}
    </a>
  ) : (
    <span class="name">{words}</span>
  );
}

/** A number that leads to the nodes behind it. */
export function CountLink({ count, query, label }: { count: number; query: Record<string, string>; label: string }) {
  const text = count.toLocaleString("en-US");
  return (
    <a class="count" href={link("/nodes", query)} aria-label={`${text} ${label}`}>
      {text}
    </a>
  );
}

/** An empty cell. */
export function Dash() {
  return (
    <span class="dim" aria-label="none">
      -
    </span>
  );
}
