import { Empty } from "../parts/problem";
import { location } from "../router";

export function NotFoundPage() {
  return (
    <>
      <h1>Not found</h1>
      <Empty title={`There is no page at ${location.value.path}`}>
        <p>
          The address may be wrong, or the page belongs to another version of the console. Go to the{" "}
          <a href="/">fleet</a> or to the <a href="/nodes">nodes</a>, or press <kbd>/</kbd> and search for a name.
        </p>
      </Empty>
    </>
  );
}
