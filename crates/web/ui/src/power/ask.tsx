import { useEffect, useId, useState } from "preact/hooks";
import { call } from "../client";
import { ApiError, asApiError } from "../errors";
import { short } from "../names";
import { Problem } from "../parts/problem";
import { setQuery } from "../router";

const KINDS = ["nodes", "clusters", "customers"];

/** The full name of what is called `text`: a node, else a cluster, else a customer, as in the CLI. */
async function find(text: string): Promise<string> {
  if (text.includes("/")) {
    return text;
  }
  for (const kind of KINDS) {
    try {
      await call("PowerService/ExplainPower", { name: `${kind}/${text}`, pageSize: 1 });
      return `${kind}/${text}`;
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "not_found") {
        throw error;
      }
    }
  }
  throw new ApiError("ExplainPower", "not_found", `the site has no node, cluster or customer named ${text}`);
}

export function Ask({ name }: { name: string }) {
  const [text, setText] = useState(name);
  const [error, setError] = useState<ApiError | null>(null);
  const [choices, setChoices] = useState<string[]>([]);
  const id = useId();
  useEffect(() => setText(KINDS.reduce((rest, kind) => short(kind, rest), name)), [name]);
  const suggest = () => {
    call("ClusterService/ListClusters", { pageSize: 1_000 }).then(
      ({ clusters = [] }) => {
        const customers = clusters.flatMap(({ spec }) => (spec?.customer ? [spec.customer] : []));
        setChoices([...clusters.map((cluster) => short("clusters", cluster.name)), ...new Set(customers)]);
      },
      () => setChoices([]),
    );
  };
  const submit = async () => {
    setError(null);
    try {
      setQuery({ of: text.trim() === "" ? null : await find(text.trim()) }, { replace: false });
    } catch (failure) {
      setError(asApiError(failure, "find"));
    }
  };
  return (
    <>
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <input
          {...({ list: id } as object)}
          type="text"
          class="power-name"
          aria-label="Name of a node, a cluster or a customer"
          placeholder="node, cluster or customer"
          autocomplete="off"
          spellcheck={false}
          value={text}
          onFocus={suggest}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <datalist id={id}>
          {choices.map((choice) => (
            <option key={choice} value={choice} />
          ))}
        </datalist>
        <button type="submit" class="button">
          Show the path
        </button>
      </form>
      <Problem error={error} />
    </>
  );
}
