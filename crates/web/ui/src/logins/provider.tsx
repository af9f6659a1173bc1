import { useEffect, useState } from "preact/hooks";
import { leaveForProvider } from "../session";

/** Why a login by the identity provider failed: codes of `/login?failure=CODE`. The provider's own words are not shown. */
const FAILURES: Record<string, string> = {
  again: "This login was not begun here, took longer than ten minutes, or was finished before. Log in again.",
  denied: "You did not allow the login at the identity provider.",
  invalid: "The answer of the identity provider is not valid. Log in again; if that fails too, tell an operator.",
  "name-taken":
    "Another member of this site has your name. An operator can delete that member, or choose another claim for names.",
  "no-group": "You are in no group that may log in here, or your group's customer is not known. Ask an operator.",
  "no-name": "The identity provider gives no name that a member can have. Ask an operator.",
  unavailable: "The identity provider does not answer, or the control plane cannot use it. Its log has the reason.",
  wait: "Too many logins from this address were refused. Wait a minute.",
};

/** Words of the failed login in the address, once. */
export function takeFailure(): string {
  const code = new URLSearchParams(window.location.search).get("failure");
  if (code === null) {
    return "";
  }
  history.replaceState(null, "", window.location.pathname + window.location.hash);
  return FAILURES[code] ?? "The login by the identity provider failed. Log in again.";
}

/** The button for the login by the identity provider, if the control plane has one. */
export function ProviderLogin() {
  const [name, setName] = useState("");
  useEffect(() => {
    fetch("/auth/methods")
      .then((response) => response.json())
      .then((methods: { oidc?: { name?: string } | null }) => setName(methods.oidc?.name ?? ""))
      // Without an answer, the token is the way to log in.
      .catch(() => undefined);
  }, []);
  if (name === "") {
    return null;
  }
  // The browser goes to the server, not to a page of the console.
  return (
    <a
      class="button primary"
      href="/auth/oidc"
      onClick={(event) => {
        event.preventDefault();
        leaveForProvider();
      }}
    >
      Log in with {name}
    </a>
  );
}
