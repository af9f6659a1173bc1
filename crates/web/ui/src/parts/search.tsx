import { useEffect, useId, useRef, useState } from "preact/hooks";
import { call } from "../client";
import { ApiError, asApiError } from "../errors";
import { loadedNodes } from "../fleet/store";
import { short } from "../names";
import { hasPage } from "../pages-known";
import { navigate } from "../router";
import { session } from "../session";
import { nodeState } from "../words";
import { Icon } from "./icon";
import { StateBadge } from "./state";

interface Hit {
  path: string;
  name: string;
  kind: string;
  state?: string;
}

const MOST = 8;

/** Names that contain the text, those that begin with it first. */
function nodeHits(text: string): Hit[] {
  const begins: Hit[] = [];
  const contains: Hit[] = [];
  for (const row of loadedNodes()?.rows.values() ?? []) {
    const at = row.id.indexOf(text);
    if (at >= 0) {
      const path = `/nodes/${encodeURIComponent(row.id)}`;
      (at === 0 ? begins : contains).push({ path, name: row.id, kind: "node", state: row.state });
    }
    if (begins.length >= MOST) {
      break;
    }
  }
  return [...begins, ...contains].slice(0, MOST);
}

async function clusterNames(): Promise<string[]> {
  const { clusters } = await call("ClusterService/ListClusters", { pageSize: 1_000 });
  return (clusters ?? []).map((cluster) => short("clusters", cluster.name));
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

/** Jumps to a node or a cluster by its name. `/` leads here from every page. */
export function Search() {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [cursor, setCursor] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const [clusters, setClusters] = useState<string[]>([]);
  const input = useRef<HTMLInputElement>(null);
  const listId = useId();
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
  const wanted = text.trim().toLowerCase();
  const matching = clusters.filter((name) => hasPage(`/clusters/${name}`) && name.includes(wanted));
  const clusterHits = matching.slice(0, MOST / 2).map((name) => ({ path: `/clusters/${name}`, name, kind: "cluster" }));
  const hits: Hit[] = wanted === "" || !isOpen ? [] : [...clusterHits, ...nodeHits(wanted)].slice(0, MOST);
  const leave = () => {
    setText("");
    setOpen(false);
    setError(null);
    input.current?.blur();
  };
  const go = async () => {
    const hit = hits[cursor];
    try {
      navigate(hit ? hit.path : await find(wanted));
      leave();
    } catch (failure) {
      setError(asApiError(failure, "search"));
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      leave();
    } else if (event.key === "Enter" && wanted !== "") {
      event.preventDefault();
      void go();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setCursor(Math.min(Math.max(0, cursor + step), Math.max(0, hits.length - 1)));
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
        onFocus={() => {
          setOpen(true);
          if (session.value !== null) {
            clusterNames().then(setClusters, () => setClusters([]));
          }
        }}
        onBlur={() => window.setTimeout(() => setOpen(false), 150)}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setCursor(0);
          setError(null);
        }}
        onKeyDown={onKeyDown}
      />
      <kbd aria-hidden="true">/</kbd>
      {isOpen && wanted !== "" && <Hits id={listId} hits={hits} cursor={cursor} error={error} wanted={wanted} leave={leave} />}
    </search>
  );
}

function Hits({ id, hits, cursor, error, wanted, leave }: {
  id: string;
  hits: Hit[];
  cursor: number;
  error: ApiError | null;
  wanted: string;
  leave(): void;
}) {
  return (
    <div class="hits">
      <ul id={id} role="listbox" aria-label="Names">
        {hits.map((hit, index) => (
          <li key={hit.path} id={`${id}-${index}`} role="option" aria-selected={index === cursor}>
            <a href={hit.path} tabIndex={-1} onClick={leave}>
              <span class="name">{hit.name}</span>
              {hit.state ? <StateBadge state={nodeState(hit.state as never)} /> : <span class="dim">{hit.kind}</span>}
            </a>
          </li>
        ))}
      </ul>
      {hits.length === 0 && (
        <p class={error ? "hits-error" : "dim"} role="status">
          {error ? error.message : `Enter opens the node or cluster with the name ${wanted}`}
        </p>
      )}
    </div>
  );
}
