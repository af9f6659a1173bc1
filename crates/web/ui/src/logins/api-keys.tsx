import { useState } from "preact/hooks";
import type { ApiKey, CreateApiKeyResponse, Role } from "../api";
import { change, pages } from "../client";
import { shellWord, short } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { Dialog, openDialog } from "../parts/dialog";
import { SelectField, TextField } from "../parts/form";
import { AsCli, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Table } from "../parts/table";
import { Ago, Copy, Until } from "../parts/text";
import { whyNotCall } from "../roles";
import { roleWord, session } from "../session";
import { stamp } from "../time";
import { useWork } from "../use-call";

const LESS: Partial<Record<Role, Role>> = { ROLE_OPERATOR: "ROLE_VIEWER", ROLE_CUSTOMER_ADMIN: "ROLE_CUSTOMER_USER" };
const DAY_S = 86_400;
const DAYS: [string, string][] = [
  ["1", "1 day"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["366", "366 days"],
];

/** Keys with which programs call as a member. */
export function ApiKeysPanel() {
  const { data, error, reload } = useWork(
    (signal): Promise<ApiKey[]> =>
      pages("SessionService/ListApiKeys", { pageSize: 1_000 }, ({ apiKeys }) => apiKeys, signal),
    "API keys",
    { everyMs: 15_000 },
  );
  const list = data ?? [];
  const create = () => openDialog((close) => <CreateDialog close={close} changed={reload} />);
  return (
    <Panel
      title="API keys"
      side={
        <Button why={whyNotCall("SessionService/CreateApiKey")} onClick={create}>
          Create an API key
        </Button>
      }
      isFlush
    >
      <Problem error={error} doing="list the API keys" retry={reload} />
      {data === undefined && error === null && <Loading what="the API keys" />}
      {data !== undefined && list.length === 0 && (
        <Empty title="There is no API key">
          <p>A key lets a program call the API as you, at the address of this console.</p>
        </Empty>
      )}
      {list.length > 0 && (
        <Table
          caption="API keys"
          rows={list}
          keyOf={({ name }) => name ?? ""}
          columns={[
            { title: "for", cell: ({ label }) => label },
            { title: "member", cell: ({ member }) => <span class="name">{member}</span> },
            { title: "role", cell: ({ role }) => roleWord(role) },
            { title: "last use", cell: ({ lastUseTime }) => (lastUseTime ? <Ago time={lastUseTime} /> : "never") },
            { title: "ends", isWide: true, cell: ({ expireTime }) => <Until time={expireTime} /> },
            { title: "id", isWide: true, cell: ({ name }) => <Copy text={short("apiKeys", name)} /> },
            {
              title: "actions",
              cell: (key) => (
                <Button
                  kind="quiet"
                  why={whyNotCall("SessionService/DeleteApiKey")}
                  onClick={() => openDialog((close) => <DeleteDialog apiKey={key} close={close} changed={reload} />)}
                >
                  Delete
                </Button>
              ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function CreateDialog({ close, changed }: { close(): void; changed(): void }) {
  const own = session.value?.role ?? "ROLE_UNSPECIFIED";
  const less = LESS[own];
  const [label, setLabel] = useState("");
  const [role, setRole] = useState<Role>(own);
  const [days, setDays] = useState("90");
  const text = label.trim();
  const why = text === "" ? "Say what the key is for" : text.length > 100 ? "At most 100 characters" : "";
  const words = [
    `rackwright api-key create ${shellWord(text || "LABEL")}`,
    role !== own && `--role ${roleWord(role)}`,
    days !== "90" && `--lifetime ${days}d`,
  ];
  return (
    <ConfirmDialog
      title="Create an API key"
      close={close}
      effect="A program with the key calls as you, with at most the role of the key, until the key ends or is deleted."
      why={why}
      commands={[words.filter(Boolean).join(" ")]}
      send={() => change("SessionService/CreateApiKey", { label: text, role, lifetime: `${Number(days) * DAY_S}s` })}
      done={(created) => {
        changed();
        openDialog((end) => <SecretDialog created={created} close={end} />);
      }}
    >
      <TextField label="What it is for" placeholder="nightly report" value={label} set={setLabel} />
      <SelectField
        label="Role"
        value={role}
        set={(value) => setRole(value as Role)}
        options={[own, ...(less ? [less] : [])].map((one): [string, string] => [one, roleWord(one)])}
      />
      <SelectField label="Valid for" value={days} set={setDays} options={DAYS} />
    </ConfirmDialog>
  );
}

/** Shows the secret, once. */
function SecretDialog({ created, close }: { created: CreateApiKeyResponse; close(): void }) {
  const { key = "", apiKey } = created;
  const curl = `curl -H 'Authorization: Bearer ${key}' ${window.location.origin}/v1/nodes`;
  return (
    <Dialog
      title="The API key"
      close={close}
      onSubmit={close}
      foot={
        <Button type="submit" kind="primary">
          Done
        </Button>
      }
    >
      <p>
        For {apiKey?.label}, as {roleWord(apiKey?.role)}, until {stamp(apiKey?.expireTime)}.{" "}
        <strong>The secret is shown only now.</strong>
      </p>
      <p class="secret">
        <Copy text={key} label="Copy the key" />
      </p>
      <AsCli commands={[curl]} />
    </Dialog>
  );
}

function DeleteDialog({ apiKey, close, changed }: { apiKey: ApiKey; close(): void; changed(): void }) {
  return (
    <ConfirmDialog
      title="Delete the API key"
      close={close}
      effect={`Programs with the key "${apiKey.label}" of ${apiKey.member} can no longer call, and their open streams end at once.`}
      isDanger
      commands={[`rackwright api-key delete ${short("apiKeys", apiKey.name)}`]}
      send={() => change("SessionService/DeleteApiKey", { name: apiKey.name })}
      done={changed}
    />
  );
}
