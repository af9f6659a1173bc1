import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../errors";
import { location } from "../router";
import { ROUTES, type Route } from "../routes";
import { isOfSite, logOut, roleWord, session } from "../session";
import { setTheme, theme, type Theme } from "../theme";
import { useSite } from "../site";
import { Banner } from "./banner";
import { Button } from "./button";
import { Dialog, openDialog } from "./dialog";
import { Icon } from "./icon";
import { Logo } from "./logo";
import { Loading, Problem } from "./problem";
import { Search } from "./search";
import { Until } from "./text";

const GROUPS = ["Hall", "Work", "Site"] as const;
/** Entries of the bar at the bottom of a phone; the others are behind "More". */
const ON_BAR = 4;

export function Shell({ children, error }: { children: ComponentChildren; error: ApiError | null }) {
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Go to the content
      </a>
      <Header />
      <Navigation />
      <div class="page">
        <Banner />
        <main id="main" tabIndex={-1}>
          {children ??
            (error ? <Problem error={error} doing="read who is logged in" /> : <Loading what="the session" />)}
        </main>
      </div>
    </div>
  );
}

function entries(): Route[] {
  const role = session.value?.role;
  return ROUTES.filter((route) => route.nav && (!route.roles || (role !== undefined && route.roles.includes(role))));
}

/** The page itself, or the list that it belongs to. */
function isCurrent(route: Route): boolean {
  const { path } = location.value;
  return route.path === "/" ? path === "/" : path === route.path || path.startsWith(`${route.path}/`);
}

function Entry({ route }: { route: Route }) {
  return (
    <a href={route.path} class="nav-entry" aria-current={isCurrent(route) ? "page" : undefined}>
      {route.nav && <Icon name={route.nav.icon} />}
      <span>{route.nav?.label}</span>
    </a>
  );
}

function Navigation() {
  const all = entries();
  return (
    <>
      <nav class="side" aria-label="Pages">
        {GROUPS.map((group) => {
          const some = all.filter((route) => route.nav?.group === group);
          return (
            some.length > 0 && (
              <div key={group} class="nav-group">
                <span class="nav-title">{group}</span>
                {some.map((route) => (
                  <Entry key={route.path} route={route} />
                ))}
              </div>
            )
          );
        })}
      </nav>
      <nav class="bottom" aria-label="Pages">
        {all.slice(0, ON_BAR).map((route) => (
          <Entry key={route.path} route={route} />
        ))}
        <button type="button" class="nav-entry" onClick={() => openDialog((close) => <Drawer close={close} />)}>
          <Icon name="menu" />
          <span>More</span>
        </button>
      </nav>
    </>
  );
}

function Drawer({ close }: { close(): void }) {
  const { path } = location.value;
  const opened = useRef(path);
  useEffect(() => {
    if (path !== opened.current) {
      close();
    }
  }, [path]);
  return (
    <Dialog title="Rackwright" kind="drawer" close={close}>
      <nav class="drawer-nav" aria-label="All pages">
        {entries().map((route) => (
          <Entry key={route.path} route={route} />
        ))}
      </nav>
      <Account />
    </Dialog>
  );
}

function Header() {
  const site = useSite();
  const { member, role, customer } = session.value ?? {};
  return (
    <header class="top">
      <a class="brand" href="/" aria-label="Rackwright, fleet">
        <Logo />
        <span class="brand-name">Rackwright</span>
      </a>
      <span class="site-name">{isOfSite() ? site : customer}</span>
      <Search />
      <details class="menu account">
        <summary>
          <span class="account-name">{member ?? ""}</span>
          <span class="role">{member ? roleWord(role) : ""}</span>
          <Icon name="down" />
        </summary>
        <div class="menu-body">
          <Account />
        </div>
      </details>
    </header>
  );
}

const THEMES: [Theme, string][] = [
  ["system", "As the system"],
  ["dark", "Dark"],
  ["light", "Light"],
];

function Account() {
  const { member, role, customer, expireTime } = session.value ?? {};
  return (
    <div class="account-body">
      <p>
        <strong>{member}</strong>
        <br />
        <span class="dim">
          {roleWord(role)}
          {customer ? ` of ${customer}` : ""}
        </span>
      </p>
      {expireTime && (
        <p class="dim small">
          This login ends <Until time={expireTime} />.
        </p>
      )}
      <fieldset class="themes">
        <legend>Colours</legend>
        {THEMES.map(([value, words]) => (
          <label key={value}>
            <input type="radio" name="theme" checked={theme.value === value} onChange={() => setTheme(value)} /> {words}
          </label>
        ))}
      </fieldset>
      <Button onClick={() => void logOut()}>Log out</Button>
    </div>
  );
}
