import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call } from "./client";
import { startProbing } from "./connection";
import { ApiError, asApiError } from "./errors";
import { NotFoundPage } from "./pages/not-found";
import { setKnownPages } from "./pages-known";
import { Dialogs } from "./parts/dialog";
import { Shell } from "./parts/shell";
import { findRoute } from "./routes";
import { location, startRouter } from "./router";
import { returnFromProvider, session } from "./session";
import { startTheme } from "./theme";
import { startClock } from "./time";
import { useWork } from "./use-call";

/** Asks who is logged in; without a session the client shows the login page. */
function useSession(isWanted: boolean): ApiError | null {
  const { error } = useWork(
    async (signal) => {
      session.value = await call("AuthService/WhoAmI", {}, signal).catch((error: unknown) => {
        throw asApiError(error, "AuthService/WhoAmI");
      });
      return true;
    },
    "session",
    { isWanted, everyMs: isWanted ? 5_000 : 0 },
  );
  return error;
}

function App() {
  const { path } = location.value;
  const found = findRoute(path);
  const isBare = found?.route.isBare ?? false;
  const error = useSession(!isBare && session.value === null);
  const title = found?.route.title(found.params) ?? "Not found";
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = path === "/" ? "Rackwright" : `${title} - Rackwright`;
    if (!isFirst.current) {
      document.getElementById("main")?.focus({ preventScroll: true });
    }
    isFirst.current = false;
  }, [path, title]);
  const Page = found?.route.page ?? NotFoundPage;
  const page = <Page key={path} params={found?.params ?? {}} />;
  return (
    <>
      {isBare ? page : <Shell error={error}>{session.value === null ? null : page}</Shell>}
      <Dialogs />
    </>
  );
}

setKnownPages((path) => findRoute(path) !== null);
startTheme();
startClock();
returnFromProvider();
startRouter();
startProbing();
const root = document.getElementById("app");
if (root !== null) {
  render(<App />, root);
}
