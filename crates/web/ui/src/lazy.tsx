import type { FunctionComponent } from "preact";
import { Loading, Problem } from "./parts/problem";
import type { PageProps } from "./routes";
import { useWork } from "./use-call";

type Pages = typeof import("./pages/more");

/** A page that is loaded when it is opened. */
export function lazy(name: keyof Pages): FunctionComponent<PageProps> {
  return (props) => {
    const { data, error, reload } = useWork(() => import("./pages/more"), "more");
    const Page = data?.[name] as FunctionComponent<PageProps> | undefined;
    if (Page !== undefined) {
      return <Page {...props} />;
    }
    return error ? <Problem error={error} doing="load the page" retry={reload} /> : <Loading what="the page" />;
  };
}
