import { useEffect, useState } from "preact/hooks";
import type { WhoAmIResponse } from "../api";
import { call } from "../client";
import { ApiError, asApiError } from "../errors";
import { ProviderLogin, takeFailure } from "../logins/provider";
import { Button } from "../parts/button";
import { Logo } from "../parts/logo";
import { AsCli } from "../parts/panel";
import { Problem } from "../parts/problem";
import { navigate } from "../router";
import { logIn, roleWord, takeAskedFor } from "../session";

/** The token after the `#` of the address, once: it must not stay in the history. */
function takeToken(): string {
  const token = window.location.hash.slice(1);
  if (token !== "") {
    history.replaceState(null, "", "/login");
  }
  return token;
}

export function LoginPage() {
  const [token, setToken] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [present, setPresent] = useState<WhoAmIResponse | null>(null);
  const [failure] = useState(takeFailure);
  const submit = async (given: string) => {
    setBusy(true);
    setError(null);
    try {
      await logIn(given.trim());
      navigate(takeAskedFor(), { replace: true });
    } catch (failure) {
      setError(asApiError(failure, "/auth/login"));
      setBusy(false);
    }
  };
  useEffect(() => {
    const take = () => {
      const given = takeToken();
      if (given === "") {
        return;
      }
      // A link must not put another member in the place of the one who is logged in.
      call("AuthService/WhoAmI", {}).then(
        (member) => {
          setToken(given);
          setPresent(member);
        },
        () => void submit(given),
      );
    };
    take();
    // The address with the token may be opened while this page is open: the browser does not load the page again.
    window.addEventListener("hashchange", take);
    return () => window.removeEventListener("hashchange", take);
  }, []);
  return (
    <main class="login" id="main" tabIndex={-1}>
      <div class="login-card">
        <div class="login-brand">
          <Logo />
          <h1>Rackwright</h1>
        </div>
        {failure !== "" && (
          <p class="login-failure" role="alert">
            {failure}
          </p>
        )}
        <ProviderLogin />
        {present && (
          <p role="alert">
            This browser is logged in as <strong>{present.member}</strong> ({roleWord(present.role)}). The token logs
            its own member in instead. If you did not ask for it, close this page.
          </p>
        )}
        <p>To log in, run this command in a terminal where you are logged in. It opens the browser.</p>
        <AsCli commands={["rackwright console open"]} />
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void submit(token);
          }}
        >
          <label for="token">Or paste a one-time token here</label>
          <input
            id="token"
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
          <Button
            type="submit"
            kind="primary"
            isBusy={isBusy}
            why={token.trim() === "" && !isBusy ? "Paste a token first" : ""}
          >
            {isBusy ? "Logging in" : "Log in"}
          </Button>
        </form>
        <Problem error={error} doing="log in" />
        <p class="dim small">A token is valid once, for a short time. It comes from the command above.</p>
      </div>
    </main>
  );
}
