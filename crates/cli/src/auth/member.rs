//! `rackwright member ...`: the members who may log in, and the end of their rights.

use clap::Subcommand;
use prost_types::Timestamp;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::{DeleteMemberRequest, ListMembersRequest, Member, RevokeMemberRequest, SetMemberRoleRequest};
use rackwright_cli_context::client::rpc;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::login::role_name;
use rackwright_cli_context::mutation::MutationArgs;
use rackwright_cli_context::output::{Format, Paint, Table};
use rackwright_cli_context::{Cx, names, pages, units};

use super::RoleArg;

/// Members of one page.
const PAGE: i32 = 1000;

/// `rackwright member`
#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Show members: role, customer, last use (to the hour) and the end of the last certificate
    List,
    /// Change the role of a member; open streams and consoles end if the new role allows less
    SetRole {
        /// Name of the member, as `rackwright member list` shows it
        member: String,
        /// New role of the member
        role: RoleArg,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Revoke all certificates, SSH keys, tokens, streams and consoles of a member; the member remains and needs a new token
    Revoke {
        /// Name of the member, as `rackwright member list` shows it
        member: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
    /// Delete a member, and revoke everything that `revoke` does
    Delete {
        /// Name of the member, as `rackwright member list` shows it
        member: String,
        #[command(flatten)]
        mutation: MutationArgs,
    },
}

/// Runs a member command.
pub async fn run(cx: &Cx, command: MemberCommand) -> Result<(), CliError> {
    match command {
        MemberCommand::List => list(cx).await,
        MemberCommand::SetRole { member, role, mutation } => set_role(cx, &member, role, &mutation).await,
        MemberCommand::Revoke { member, mutation } => revoke(cx, &member, &mutation).await,
        MemberCommand::Delete { member, mutation } => delete(cx, &member, &mutation).await,
    }
}

fn short(name: &str) -> &str {
    names::short("members", name)
}

async fn list(cx: &Cx) -> Result<(), CliError> {
    let client = cx.client().await?;
    let members = pages::all(async |page_token| {
        let request = ListMembersRequest {
            page_size: PAGE,
            page_token,
        };
        let page = rpc!(client, AuthServiceClient.list_members, "list members", request).await?;
        Ok((page.members, page.next_page_token))
    })
    .await?;
    let width = cx.ui.width();
    cx.ui.list(&members, |paint| table(&members, paint, width))
}

fn table(members: &[Member], paint: Paint, width: Option<usize>) -> String {
    let stamp = |time: Option<&Timestamp>| time.map(units::stamp).unwrap_or_default();
    let mut table = Table::new(&[
        "MEMBER",
        "ROLE",
        "CUSTOMER",
        "ORIGIN",
        "JOINED",
        "LAST USE",
        "CERTIFICATE ENDS",
    ]);
    for member in members {
        table.row([
            short(&member.name).into(),
            role_name(member.role).into(),
            member.customer.as_str().into(),
            origin(member).into(),
            stamp(member.create_time.as_ref()).into(),
            stamp(member.last_use_time.as_ref()).into(),
            stamp(member.certificate_expire_time.as_ref()).into(),
        ]);
    }
    table.render(paint, width)
}

/// How the member joined: the identity provider without `https://`, or the word for an invitation.
fn origin(member: &Member) -> &str {
    match member.issuer.as_str() {
        "" => "invitation",
        issuer => issuer.strip_prefix("https://").unwrap_or(issuer),
    }
}

/// Shows a changed member: a sentence for people, otherwise the member.
fn show_member(cx: &Cx, member: &Member, sentence: &str) -> Result<(), CliError> {
    if cx.ui.format() != Format::Table {
        return cx.ui.item(member, |_| String::new());
    }
    cx.ui.say(sentence)
}

async fn set_role(cx: &Cx, name: &str, role: RoleArg, mutation: &MutationArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = format!("change the role of {}", short(name));
    let request = SetMemberRoleRequest {
        name: names::full("members", name),
        role: role.role() as i32,
        mutation: Some(mutation.once()),
    };
    let member = rpc!(client, AuthServiceClient.set_member_role, doing, request).await?;
    let sentence = format!("{} now has the role {}", short(&member.name), role_name(member.role));
    show_member(cx, &member, &sentence)
}

async fn revoke(cx: &Cx, name: &str, mutation: &MutationArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let doing = format!("revoke {}", short(name));
    let request = RevokeMemberRequest {
        name: names::full("members", name),
        mutation: Some(mutation.once()),
    };
    let member = rpc!(client, AuthServiceClient.revoke_member, doing, request).await?;
    let (name, role) = (short(&member.name), role_name(member.role));
    let customer = match member.customer.as_str() {
        "" => String::new(),
        customer => format!(" --customer {customer}"),
    };
    if !member.issuer.is_empty() {
        let sentence = format!(
            "all sessions, API keys and SSH keys of {name} are revoked; {name} can log in again while a group at {} \
             allows it",
            origin(&member)
        );
        return show_member(cx, &member, &sentence);
    }
    let sentence = format!(
        "all certificates, SSH keys and tokens of {name} are revoked; `rackwright token create {name} --role \
         {role}{customer}` makes a new token"
    );
    show_member(cx, &member, &sentence)
}

async fn delete(cx: &Cx, name: &str, mutation: &MutationArgs) -> Result<(), CliError> {
    let client = cx.client().await?;
    let name = short(name);
    let request = DeleteMemberRequest {
        name: names::full("members", name),
        mutation: Some(mutation.once()),
    };
    let doing = format!("delete member {name}");
    rpc!(client, AuthServiceClient.delete_member, doing, request).await?;
    cx.ui
        .say(&format!("{name} deleted, with all certificates, SSH keys and tokens"))
}
