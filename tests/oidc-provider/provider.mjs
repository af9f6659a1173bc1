// A real OpenID Connect provider for tests, on loopback: one client, and accounts whose groups are given. It has logins by a
// browser, and with a device code.
//
//   node provider.mjs PORT REDIRECT_URL '{"ann": ["ops"], "uma": []}'
//
// Its only page asks for the account. There is no password.
import { Provider } from "oidc-provider";

const SCOPES = ["openid", "profile", "email", "groups"];
const [port, redirectUrl, groups] = process.argv.slice(2);
const accounts = JSON.parse(groups);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "rackwright",
      client_secret: "a secret of the test",
      redirect_uris: [redirectUrl],
      grant_types: ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
      response_types: ["code"],
    },
  ],
  scopes: SCOPES,
  claims: {
    openid: ["sub"],
    profile: ["preferred_username"],
    email: ["email", "email_verified"],
    groups: ["groups"],
  },
  cookies: { keys: ["only for tests"] },
  // The pages of logins with a device code are the provider's own.
  features: { devInteractions: { enabled: false }, deviceFlow: { enabled: true } },
  async findAccount(_context, id) {
    if (!(id in accounts)) {
      return undefined;
    }
    const email = `${id}@lab.example`;
    const claims = { sub: id, preferred_username: id, email, email_verified: true, groups: accounts[id] };
    return { accountId: id, claims: async () => claims };
  },
  // The client belongs to the site: the person is not asked for consent.
  async loadExistingGrant({ oidc }) {
    const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope(SCOPES.join(" "));
    await grant.save();
    return grant;
  },
});

const PAGE = `<!doctype html><title>The provider</title><h1>The provider</h1><form method="post">
<input name="account"><button name="do" value="login">Sign in</button>
<button name="do" value="cancel">Cancel</button></form>`;

async function body(request) {
  let text = "";
  for await (const part of request) {
    text += part;
  }
  return new URLSearchParams(text);
}

provider.use(async (context, next) => {
  if (!context.path.startsWith("/interaction/")) {
    return next();
  }
  const { req, res } = context;
  if (context.method === "GET") {
    await provider.interactionDetails(req, res);
    context.type = "html";
    context.body = PAGE;
    return undefined;
  }
  const form = await body(req);
  const login = { login: { accountId: form.get("account") } };
  const result = form.get("do") === "login" ? login : { error: "access_denied", error_description: "cancelled" };
  await provider.interactionFinished(req, res, result);
  context.respond = false;
  return undefined;
});

provider.listen(Number(port), "127.0.0.1", () => console.log(`${issuer} is ready`));
