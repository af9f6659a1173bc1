import { ApiKeysPanel } from "../logins/api-keys";
import { SessionsPanel } from "../logins/sessions";
import { SshKeysPanel } from "../logins/ssh-keys";
import { AsCli, PageHead } from "../parts/panel";
import { mayCall, ownCustomer } from "../roles";
import { isOperator, session } from "../session";

function scope(): string {
  if (isOperator()) {
    return "of all members";
  }
  return session.value?.role === "ROLE_CUSTOMER_ADMIN" ? `of the members of ${ownCustomer()}` : "of yours";
}

export function SessionsPage() {
  const hasKeys = mayCall("ConsoleService/ListSshKeys");
  return (
    <>
      <PageHead title="Logins">
        Browsers and API keys {scope()}
        {mayCall("AuthService/ListMembers") && (
          <>
            . The certificates of the CLI are on the page of <a href="/members">members</a>.
          </>
        )}
      </PageHead>
      <SessionsPanel />
      <ApiKeysPanel />
      {hasKeys && <SshKeysPanel />}
      <AsCli
        commands={[
          "rackwright session list",
          "rackwright api-key list",
          "rackwright api-key create LABEL",
          ...(hasKeys ? ["rackwright ssh-key list"] : []),
        ]}
      />
    </>
  );
}
