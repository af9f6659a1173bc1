import { useState } from "preact/hooks";
import type { CreateTokenResponse, Role } from "../api";
import { change } from "../client";
import { useCustomers } from "../clusters/customers";
import { shellWord } from "../names";
import { Button } from "../parts/button";
import { ConfirmDialog } from "../parts/confirm";
import { Dialog, openDialog } from "../parts/dialog";
import { SelectField, TextField } from "../parts/form";
import { AsCli } from "../parts/panel";
import { ownCustomer } from "../roles";
import { roleWord } from "../session";
import { stamp } from "../time";
import { grantable, isOfCustomer, roleOptions } from "./roles";

const NAME = /^[a-z0-9.@-]{1,63}$/;
const GRPC_PORT = 7070;
const LIFETIMES: [string, string][] = [
  ["3600s", "1 hour"],
  ["86400s", "1 day"],
  ["604800s", "7 days"],
];
const CLI_LIFETIMES: Record<string, string> = { "3600s": "1h", "86400s": "1d", "604800s": "7d" };

export function InviteDialog({ close, changed }: { close(): void; changed(): void }) {
  const own = ownCustomer();
  const customers = useCustomers();
  const roles = grantable();
  const [member, setMember] = useState("");
  const [role, setRole] = useState<Role>(roles[0] ?? "ROLE_VIEWER");
  const [customer, setCustomer] = useState(own);
  const [lifetime, setLifetime] = useState("3600s");
  const name = member.trim();
  const needsCustomer = isOfCustomer(role);
  const why = !NAME.test(name)
    ? "Give a name: 1 to 63 of a-z, 0-9, '-', '.' and '@'"
    : needsCustomer && customer.trim() === ""
      ? "Give the customer"
      : own !== "" && !name.endsWith(`@${own}`)
        ? `The name must end with @${own}`
        : "";
  const words = [
    `rackwright token create ${shellWord(name || "MEMBER")} --role ${roleWord(role)}`,
    needsCustomer && own === "" && `--customer ${shellWord(customer.trim() || "NAME")}`,
    lifetime !== "3600s" && `--lifetime ${CLI_LIFETIMES[lifetime]}`,
  ];
  const request = { member: name, role, lifetime, customer: needsCustomer ? customer.trim() : "" };
  return (
    <ConfirmDialog
      title="Invite a member"
      close={close}
      effect="The member gets a command that works for one login. A member that exists gets a new login, and the role."
      why={why}
      commands={[words.filter(Boolean).join(" ")]}
      send={() => change("AuthService/CreateToken", request)}
      done={(token) => {
        changed();
        openDialog((end) => <TokenDialog member={name} token={token} close={end} />);
      }}
    >
      <TextField label="Name" placeholder={own === "" ? "bob" : `bob@${own}`} value={member} set={setMember} />
      <SelectField label="Role" value={role} set={(value) => setRole(value as Role)} options={roleOptions(roles)} />
      {needsCustomer && own === "" && (
        <TextField label="Customer" value={customer} set={setCustomer} choices={customers} />
      )}
      <SelectField label="The command is valid for" value={lifetime} set={setLifetime} options={LIFETIMES} />
    </ConfirmDialog>
  );
}

/** Shows the secret, once. */
function TokenDialog({ member, token, close }: { member: string; token: CreateTokenResponse; close(): void }) {
  const server = `https://${window.location.hostname}:${GRPC_PORT}`;
  return (
    <Dialog
      title={`${member} can log in`}
      close={close}
      onSubmit={close}
      foot={
        <Button type="submit" kind="primary">
          Done
        </Button>
      }
    >
      <p>
        Once, until {stamp(token.expireTime)}, with this command. <strong>It is shown only now</strong>; give it to{" "}
        {member} over a safe way.
      </p>
      <AsCli
        commands={[
          `rackwright login --server ${server} --ca-sha256 ${token.caSha256 ?? ""} --token ${token.token ?? ""}`,
        ]}
      />
      <p class="dim small">If the control plane has another address or port for the CLI, change it after --server.</p>
    </Dialog>
  );
}
