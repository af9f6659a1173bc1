import type { RefObject } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { call } from "../client";
import { ApiError, asApiError } from "../errors";
import { loadedNodes } from "../fleet/store";
import { short } from "../names";
import { hasPage } from "../pages-known";
import { navigate } from "../router";
import { session } from "../session";
import { nodeState, nodeStateWord, type NodeStateWord } from "../words";
import { Icon } from "./icon";
import { StateBadge } from "./state";

interface Hit {
  path: string;
  name: string;
  kind: string;
  state?: NodeStateWord;
}

const MOST = 8;
/** Names that are read for the search while no page has the nodes. */
const READ = 1_000;

interface Names {
  nodes: { id: string; state: NodeStateWord }[];
  clusters: string[];
  /** There are more nodes than were read. */
  isPart: boolean;
}

const NO_NAMES: Names = { nodes: [], clusters: [], isPart: false };

async function readNames(): Promise<Names> {
  const isLoaded = loadedNodes()?.isSynced.value ?? false;
  const [listed, { clusters }] = await Promise.all([
    isLoaded
      ? { nodes: [], nextPageToken: "" }
      : call("NodeService/ListNodes", { pageSize: READ, readMask: "name,status" }),
    call("ClusterService/ListClusters", { pageSize: READ }),
  ]);
  return {
    nodes: (listed.nodes ?? []).map((node) => ({
      id: short("nodes", node.name),
      state: nodeStateWord(node.status?.state),
    })),
    clusters: (clusters ?? []).map((cluster) => short("clusters", cluster.name)),
    isPart: Boolean(listed.nextPageToken),
  };
}

/** Names that contain the text, those that begin with it first. */
function nodeHits(text: string, names: Names): Hit[] {
  const begins: Hit[] = [];
  const contains: Hit[] = [];
  const loaded = loadedNodes();
  for (const { id, state } of loaded?.isSynced.value ? loaded.rows.values() : names.nodes) {
    const at = id.indexOf(text);
    if (at >= 0) {
      (at === 0 ? begins : contains).push({ path: `/nodes/${encodeURIComponent(id)}`, name: id, kind: "node", state });
    }
    if (begins.length >= MOST) {
      break;
    }
  }
  return [...begins, ...contains].slice(0, MOST);
}

function hitsOf(text: string, names: Names): Hit[] {
  const clusters = names.clusters
    .filter((name) => name.includes(text) && hasPage(`/clusters/${name}`))
    .slice(0, MOST / 2)
    .map((name) => ({ path: `/clusters/${name}`, name, kind: "cluster" }));
  return [...clusters, ...nodeHits(text, names)].slice(0, MOST);
}

/** The page of the node or the cluster with exactly this name. */
async function find(name: string): Promise<string> {
  try {
    await call("NodeService/GetNode", { name: `nodes/${name}`, readMask: "name" });
    return `/nodes/${encodeURIComponent(name)}`;
  } catch (error) {
    if (!(error instanceof ApiError) || !["not_found", "invalid_argument"].includes(error.code)) {
      throw error;
    }
  }
  const path = `/clusters/${encodeURIComponent(name)}`;
  if (hasPage(path)) {
    await call("ClusterService/GetCluster", { name: `clusters/${name}` });
    return path;
  }
  throw new ApiError("search", "not_found", `there is no node ${name}`);
}

/** `/` leads to the search from every page. */
function useSlash(input: RefObject<HTMLInputElement | null>): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
      if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        input.current?.focus();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

/** Jumps to a node or a cluster by its name. */
export function Search() {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [cursor, setCursor] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const [names, setNames] = useState(NO_NAMES);
  const input = useRef<HTMLInputElement>(null);
  const listId = useId();
  useSlash(input);
  const wanted = text.trim().toLowerCase();
  const hits = wanted === "" || !isOpen ? [] : hitsOf(wanted, names);
  const change = (value: string) => {
    setText(value);
    setCursor(0);
    setError(null);
  };
  const leave = () => {
    change("");
    input.current?.blur();
  };
  const go = async () => {
    try {
      navigate(hits[cursor]?.path ?? (await find(wanted)));
      leave();
    } catch (failure) {
      setError(asApiError(failure, "search"));
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (event.key === "Escape") {
      leave();
    } else if (event.key === "Enter" && wanted !== "") {
      event.preventDefault();
      void go();
    } else if (step !== 0) {
      event.preventDefault();
      setCursor(Math.min(Math.max(0, cursor + step), Math.max(0, hits.length - 1)));
    }
  };
  const onFocus = () => {
    setOpen(true);
    if (session.value !== null) {
      readNames().then(setNames, (failure: unknown) => setError(asApiError(failure, "search")));
    }
  };
  return (
    <search class="search">
      <Icon name="search" />
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label="Find a node or cluster by name"
        aria-expanded={hits.length > 0}
        aria-controls={listId}
        aria-activedescendant={hits.length > 0 ? `${listId}-${cursor}` : undefined}
        placeholder="Find a node or cluster"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onFocus={onFocus}
        onBlur={() => window.setTimeout(() => setOpen(false), 150)}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <kbd aria-hidden="true">/</kbd>
      {isOpen && wanted !== "" && (
        <Hits
          id={listId}
          hits={hits}
          cursor={cursor}
          error={error}
          wanted={wanted}
          isPart={names.isPart}
          leave={leave}
        />
      )}
    </search>
  );
}

function Hits({
  id,
  hits,
  cursor,
  error,
  wanted,
  isPart,
  leave,
}: {
  id: string;
  hits: Hit[];
  cursor: number;
  error: ApiError | null;
  wanted: string;
  isPart: boolean;
  leave(): void;
}) {
  return (
    <div class="hits">
      <ul id={id} role="listbox" aria-label="Names">
        {hits.map((hit, index) => (
          <li key={hit.path} id={`${id}-${index}`} role="option" aria-selected={index === cursor}>
            <a href={hit.path} tabIndex={-1} onClick={leave}>
              <span class="name">{hit.name}</span>
              {hit.state ? <StateBadge state={nodeState(hit.state)} /> : <span class="dim">{hit.kind}</span>}
            </a>
          </li>
        ))}
      </ul>
      {hits.length > 0 && isPart && (
        <p class="dim">From the first {READ.toLocaleString("en-US")} nodes. For another, type its whole name</p>
      )}
      {hits.length === 0 && (
        <p class={error ? "hits-error" : "dim"} role="status">
          {error ? error.message : `No name that was read has ${wanted} in it. Enter asks for exactly this name`}
        </p>
      )}
    </div>
  );
}
