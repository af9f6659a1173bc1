//! The control plane's side of the logins in these tests.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use rackwright_oidc::{Client, Settings};

use crate::provider::{CLIENT, Provider};

/// The time at the provider and at the client.
pub const NOW: i64 = 1_800_000_000;
/// The redirect URL of the control plane.
pub const BACK: &str = "https://rack.example/auth/oidc/callback";

/// A client of a provider with this secret. `member_claim` is the claim with the name of a new member.
pub fn client_with(provider: &Provider, secret: &str, member_claim: &str) -> Client {
    let settings = Settings {
        issuer: provider.issuer.clone(),
        client_id: CLIENT.0.into(),
        client_secret: Some(secret.into()),
        redirect_url: BACK.into(),
        scopes: ["openid", "profile", "groups"].map(str::to_owned).into(),
        member_claim: member_claim.into(),
        groups_claim: "groups".into(),
        authorities: None,
        now_s: || NOW,
    };
    Client::new(settings).unwrap()
}
