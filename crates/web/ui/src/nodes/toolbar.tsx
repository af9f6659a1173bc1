import { useEffect, useState } from "preact/hooks";
import { GROUPS } from "../fleet/groups";
import { Icon } from "../parts/icon";
import { setQuery } from "../router";
import { columnOf, COLUMNS, columnsOf } from "./columns";
import type { Narrowing } from "./view";

export const FILTER_HELP = "Terms FIELD = VALUE or FIELD != VALUE joined by AND, over state, sku, name and labels.KEY";

/** The API's filter. It is asked for when it is entered, because each filter is a new stream. */
export function FilterBox({ filter }: { filter: string }) {
  const [text, setText] = useState(filter);
  useEffect(() => setText(filter), [filter]);
  return (
    <form
      class="filter"
      onSubmit={(event) => {
        event.preventDefault();
        setQuery({ filter: text.trim() }, { replace: false });
      }}
    >
      <Icon name="search" />
      <input
        type="text"
        aria-label="Filter"
        title={FILTER_HELP}
        placeholder="state = failed AND labels.rack = r12"
        spellcheck={false}
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {filter !== "" && (
        <button
          type="button"
          class="icon-button"
          aria-label="Remove the filter"
          onClick={() => setQuery({ filter: null }, { replace: false })}
        >
          <Icon name="close" />
        </button>
      )}
      <button type="submit" class="button">
        Filter
      </button>
    </form>
  );
}

export function ViewSwitch({ isMap }: { isMap: boolean }) {
  return (
    <div class="segments" role="group" aria-label="View">
      <button type="button" aria-pressed={!isMap} onClick={() => setQuery({ view: null })}>
        <Icon name="list" /> Table
      </button>
      <button type="button" aria-pressed={isMap} onClick={() => setQuery({ view: "map" })}>
        <Icon name="map" /> Map
      </button>
    </div>
  );
}

export function GroupSelect({ group, labels }: { group: string; labels: string[] }) {
  return (
    <label>
      by{" "}
      <select value={group} onChange={(event) => setQuery({ group: event.currentTarget.value })}>
        {Object.entries(GROUPS).map(([key, { title }]) => (
          <option key={key} value={key}>
            {title}
          </option>
        ))}
        {labels
          .filter((label) => label !== "rack")
          .map((label) => (
            <option key={label} value={`labels.${label}`}>
              label {label}
            </option>
          ))}
      </select>
    </label>
  );
}

/** Which columns are shown; the address keeps them. */
export function ColumnMenu({ columns, labels }: { columns: string | null; labels: string[] }) {
  const shown = columnsOf(columns).map(({ key }) => key);
  const all = [...COLUMNS.map(({ key }) => key), ...labels.map((label) => `labels.${label}`)];
  const toggle = (key: string) => {
    const wanted = shown.includes(key)
      ? shown.filter((other) => other !== key)
      : all.filter((other) => shown.includes(other) || other === key);
    setQuery({ cols: wanted.join(",") });
  };
  return (
    <details class="menu">
      <summary class="button">
        <Icon name="columns" /> Columns
      </summary>
      <div class="menu-body">
        <ul class="choices">
          {all.map((key) => (
            <li key={key}>
              <label class="check">
                <input
                  type="checkbox"
                  checked={shown.includes(key)}
                  disabled={key === "node"}
                  onChange={() => toggle(key)}
                />
                {key.startsWith("labels.") ? `label ${key.slice(7)}` : columnOf(key)?.title}
              </label>
            </li>
          ))}
        </ul>
      </div>
    </details>
  );
}

function Chip({ text, name }: { text: string; name: string }) {
  return (
    <span class="chip">
      {text}
      <button
        type="button"
        class="icon-button"
        aria-label={`Remove: ${text}`}
        onClick={() => setQuery({ [name]: null }, { replace: false })}
      >
        <Icon name="close" />
      </button>
    </span>
  );
}

/** What narrows the list beyond the filter. */
export function Chips({ narrowing: { health, waits, late } }: { narrowing: Narrowing }) {
  return (
    <>
      {health !== "" && <Chip name="health" text={`health: ${health}`} />}
      {waits !== "" && <Chip name="waits" text={`waits for: ${waits}`} />}
      {late && <Chip name="late" text="past the deadline" />}
    </>
  );
}
