import type { Member, MemberToken } from "../api";
import { pages } from "../client";
import { DeleteMemberDialog, DeleteTokenDialog, RevokeDialog, RoleDialog } from "../members/dialogs";
import { InviteDialog } from "../members/invite";
import { short } from "../names";
import { Button } from "../parts/button";
import { openDialog } from "../parts/dialog";
import { AsCli, PageHead, Panel } from "../parts/panel";
import { Empty, Loading, Problem } from "../parts/problem";
import { Table, type Column } from "../parts/table";
import { Ago, Copy, Dash, Until } from "../parts/text";
import { mayCall, ownCustomer, whyNotCall } from "../roles";
import { roleWord, session } from "../session";
import { plural } from "../units";
import { useWork, type Called } from "../use-call";

const POLL_MS = 15_000;

export function MembersPage() {
  const members = useWork(
    (signal): Promise<Member[]> =>
      pages("AuthService/ListMembers", { pageSize: 1_000 }, (page) => page.members, signal),
    "members",
    { everyMs: POLL_MS },
  );
  const hasTokens = mayCall("AuthService/ListTokens");
  const tokens = useWork(
    (signal): Promise<MemberToken[]> =>
      pages("AuthService/ListTokens", { pageSize: 1_000 }, (page) => page.tokens, signal),
    "tokens",
    { everyMs: POLL_MS, isWanted: hasTokens },
  );
  const changed = () => {
    members.reload();
    tokens.reload();
  };
  const canInvite = mayCall("AuthService/CreateToken");
  const invite = () => openDialog((close) => <InviteDialog close={close} changed={changed} />);
  return (
    <>
      <PageHead
        title="Members"
        side={
          canInvite && (
            <Button kind="primary" why={whyNotCall("AuthService/CreateToken")} onClick={invite}>
              Invite a member
            </Button>
          )
        }
      >
        {ownCustomer() === ""
          ? "People and programs that may log in to the site"
          : `People and programs that may log in for ${ownCustomer()}`}
      </PageHead>
      <MembersPanel members={members} changed={changed} />
      {hasTokens && <TokensPanel tokens={tokens} changed={changed} />}
      <AsCli
        commands={[
          "rackwright member list",
          ...(hasTokens ? ["rackwright token list"] : []),
          ...(canInvite ? ["rackwright token create MEMBER --role ROLE"] : []),
        ]}
      />
    </>
  );
}

function MembersPanel({ members, changed }: { members: Called<Member[]>; changed(): void }) {
  const list = members.data ?? [];
  const customer: Column<Member> = {
    title: "customer",
    isWide: true,
    cell: (member) => member.customer || <span class="dim">the site</span>,
  };
  const actions: Column<Member> = {
    title: "actions",
    cell: (member) => <MemberActions member={member} changed={changed} />,
  };
  return (
    <Panel title="Members" side={members.data && plural(list.length, "member")} isFlush>
      <Problem error={members.error} doing="list the members" retry={members.reload} />
      {members.data === undefined && members.error === null && <Loading what="the members" />}
      {list.length > 0 && (
        <Table
          caption="Members"
          rows={list}
          keyOf={({ name }) => name ?? ""}
          columns={[
            { title: "member", cell: (member) => <Name member={member} /> },
            { title: "role", cell: ({ role }) => roleWord(role) },
            ...(ownCustomer() === "" ? [customer] : []),
            { title: "origin", isWide: true, cell: ({ issuer }) => issuer || <span class="dim">an invitation</span> },
            { title: "joined", isWide: true, cell: ({ createTime }) => <Ago time={createTime} bare /> },
            {
              title: "last use",
              cell: ({ lastUseTime }) => (lastUseTime ? <Ago time={lastUseTime} /> : <span class="dim">unknown</span>),
            },
            {
              title: "certificate ends",
              isWide: true,
              cell: ({ certificateExpireTime }) =>
                certificateExpireTime ? <Until time={certificateExpireTime} /> : <Dash />,
            },
            ...(mayCall("AuthService/SetMemberRole") ? [actions] : []),
          ]}
        />
      )}
    </Panel>
  );
}

function Name({ member }: { member: Member }) {
  const name = short("members", member.name);
  return (
    <>
      <span class="name">{name}</span>
      {name === session.value?.member && <span class="dim"> (you)</span>}
    </>
  );
}

function MemberActions({ member, changed }: { member: Member; changed(): void }) {
  const props = { member, changed };
  return (
    <span class="row-actions">
      <Button
        kind="quiet"
        why={
          member.issuer ? "Its groups at the identity provider give the role" : whyNotCall("AuthService/SetMemberRole")
        }
        onClick={() => openDialog((close) => <RoleDialog {...props} close={close} />)}
      >
        Set role
      </Button>
      <Button
        kind="quiet"
        why={whyNotCall("AuthService/RevokeMember")}
        onClick={() => openDialog((close) => <RevokeDialog {...props} close={close} />)}
      >
        Revoke
      </Button>
      <Button
        kind="quiet"
        why={whyNotCall("AuthService/DeleteMember")}
        onClick={() => openDialog((close) => <DeleteMemberDialog {...props} close={close} />)}
      >
        Delete
      </Button>
    </span>
  );
}

function TokensPanel({ tokens, changed }: { tokens: Called<MemberToken[]>; changed(): void }) {
  const list = tokens.data ?? [];
  const remove: Column<MemberToken> = {
    title: "actions",
    cell: (token) => (
      <Button
        kind="quiet"
        why={whyNotCall("AuthService/DeleteToken")}
        onClick={() => openDialog((close) => <DeleteTokenDialog token={token} close={close} changed={changed} />)}
      >
        Delete
      </Button>
    ),
  };
  return (
    <Panel title="Unused invitations" isFlush>
      <Problem error={tokens.error} doing="list the invitations" retry={tokens.reload} />
      {tokens.data !== undefined && list.length === 0 && <Empty title="No invitation is open" />}
      {list.length > 0 && (
        <Table
          caption="Unused invitations"
          rows={list}
          keyOf={({ name }) => name ?? ""}
          columns={[
            { title: "member", cell: ({ member }) => <span class="name">{member}</span> },
            { title: "role", cell: ({ role }) => roleWord(role) },
            { title: "customer", isWide: true, cell: ({ customer }) => customer || <span class="dim">the site</span> },
            {
              title: "made by",
              isWide: true,
              cell: ({ createdBy }) => createdBy || <span class="dim">the control plane's host</span>,
            },
            { title: "ends", cell: ({ expireTime }) => <Until time={expireTime} /> },
            { title: "id", isWide: true, cell: ({ name }) => <Copy text={short("tokens", name)} /> },
            ...(mayCall("AuthService/DeleteToken") ? [remove] : []),
          ]}
        />
      )}
    </Panel>
  );
}
