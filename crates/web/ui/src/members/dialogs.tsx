import { useState } from "preact/hooks";
import type { Member, MemberToken, Role } from "../api";
import { change } from "../client";
import { short } from "../names";
import { ConfirmDialog } from "../parts/confirm";
import { SelectField } from "../parts/form";
import { roleWord } from "../session";
import { alike, roleOptions } from "./roles";

interface Props {
  member: Member;
  close(): void;
  changed(): void;
}

const ACCESSES = "certificates, SSH keys, sessions, API keys, and unused tokens for the member and by the member";

export function RoleDialog({ member, close, changed }: Props) {
  const name = short("members", member.name);
  const [role, setRole] = useState<Role>(member.role ?? "ROLE_UNSPECIFIED");
  return (
    <ConfirmDialog
      title={`Set the role of ${name}`}
      close={close}
      effect={`${name} is ${roleWord(member.role)} now. Open streams and consoles end if the new role has fewer rights.`}
      why={role === member.role ? "Choose another role" : ""}
      commands={[`rackwright member set-role ${name} ${roleWord(role)}`]}
      send={() => change("AuthService/SetMemberRole", { name: member.name, role })}
      done={changed}
    >
      <SelectField
        label="Role"
        value={role}
        set={(value) => setRole(value as Role)}
        options={roleOptions(alike(member.role))}
      />
    </ConfirmDialog>
  );
}

export function RevokeDialog({ member, close, changed }: Props) {
  const name = short("members", member.name);
  return (
    <ConfirmDialog
      title={`Revoke ${name}`}
      close={close}
      effect={`Every access of ${name} ends at once. The member remains, and can return with a new invitation.`}
      loses={`${ACCESSES}; open streams and consoles end`}
      typed={name}
      commands={[`rackwright member revoke ${name}`]}
      send={() => change("AuthService/RevokeMember", { name: member.name })}
      done={changed}
    />
  );
}

export function DeleteMemberDialog({ member, close, changed }: Props) {
  const name = short("members", member.name);
  return (
    <ConfirmDialog
      title={`Delete ${name}`}
      close={close}
      effect={`Every access of ${name} ends at once, and the member is deleted. A new member of the same name inherits nothing.`}
      loses={`the member, with ${ACCESSES}`}
      typed={name}
      commands={[`rackwright member delete ${name}`]}
      send={() => change("AuthService/DeleteMember", { name: member.name })}
      done={changed}
    />
  );
}

export function DeleteTokenDialog({ token, close, changed }: { token: MemberToken; close(): void; changed(): void }) {
  return (
    <ConfirmDialog
      title={`Delete the invitation of ${token.member}`}
      close={close}
      effect="The command of the invitation no longer works."
      isDanger
      commands={[`rackwright token delete ${short("tokens", token.name)}`]}
      send={() => change("AuthService/DeleteToken", { name: token.name })}
      done={changed}
    />
  );
}
