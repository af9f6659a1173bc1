//! Logins with a device code, at a provider that gives valid and invalid answers.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod client;
mod provider;

use client::{NOW, client_with};
use provider::{CLIENT, Decision, Fault, Provider};
use rackwright_oidc::{Client, DeviceAnswer, DeviceLogin, LoginError, Person};
use serde_json::{Value, json};

fn client(provider: &Provider) -> Client {
    client_with(provider, CLIENT.1, "preferred_username")
}

fn ann() -> Decision {
    Decision::Allowed(json!({"sub": "17", "preferred_username": "ann", "groups": ["ops", "all"]}))
}

async fn answer(client: &Client, login: &DeviceLogin) -> Result<DeviceAnswer, LoginError> {
    client.ask_device(&login.device_code).await
}

#[tokio::test]
async fn a_person_allows_the_login_of_a_program() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider);
    let login = client.begin_device().await.unwrap();
    let shown = (
        login.user_code.as_str(),
        login.url.as_str(),
        login.complete_url.as_deref(),
    );
    let page = format!("{}/activate", provider.issuer);
    let complete = format!("{page}?user_code=CODE-0");
    assert_eq!(shown, ("CODE-0", page.as_str(), Some(complete.as_str())));
    assert_eq!(
        (login.valid_s, login.interval_s),
        (600, 5),
        "the provider names no interval"
    );
    let other = client.begin_device().await.unwrap();

    assert_eq!(answer(&client, &login).await.unwrap(), DeviceAnswer::Pending);
    provider.set_slow(true);
    assert_eq!(answer(&client, &login).await.unwrap(), DeviceAnswer::SlowDown);
    provider.set_slow(false);
    provider.decide("CODE-0", ann());
    let person = Person {
        issuer: provider.issuer.clone(),
        subject: "17".into(),
        name: Some("ann".into()),
        groups: ["ops", "all"].map(str::to_owned).into(),
    };
    assert_eq!(
        answer(&client, &other).await.unwrap(),
        DeviceAnswer::Pending,
        "the person has allowed another login"
    );
    let allowed = answer(&client, &login).await.unwrap();
    assert_eq!(allowed, DeviceAnswer::Allowed(Box::new(person)));
    // The provider gives the token once.
    let again = answer(&client, &login).await;
    assert!(matches!(again, Err(LoginError::Invalid(_))), "{again:?}");
}

#[tokio::test]
async fn a_refused_login_and_one_that_is_too_old_end() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider);
    for (decision, end) in [
        (Decision::Denied, DeviceAnswer::Denied),
        (Decision::Expired, DeviceAnswer::Expired),
    ] {
        let login = client.begin_device().await.unwrap();
        provider.decide(&login.user_code, decision);
        assert_eq!(answer(&client, &login).await.unwrap(), end);
    }
    let unknown = client.ask_device(&"device-99".into()).await;
    assert!(matches!(unknown, Err(LoginError::Invalid(_))), "{unknown:?}");
}

#[tokio::test]
async fn a_token_with_a_fault_logs_no_one_in() {
    for (fault, words) in [
        (Fault::Audience, "udience"),
        (Fault::FurtherAudience, "trusted audience"),
        (Fault::Issuer, "ssuer"),
        (Fault::Expired, "xpired"),
        (Fault::Future, "in the future"),
        (Fault::Unsigned, "ignature"),
        (Fault::ClientSecret, "ignature"),
        (Fault::PublicKey, "ignature"),
        (Fault::ForeignKey, "ignature"),
        (Fault::UnknownKey, "ignature"),
        (Fault::NoToken, "no identity token"),
        (Fault::OtherPerson, ""),
    ] {
        let provider = Provider::start(|| NOW).await;
        let client = client(&provider);
        let login = client.begin_device().await.unwrap();
        provider.set_fault(fault);
        provider.decide(&login.user_code, ann());
        let refused = answer(&client, &login).await;
        let Err(LoginError::Invalid(why)) = refused else {
            panic!("{fault:?}: {refused:?}");
        };
        assert!(why.contains(words), "{fault:?}: {why}");
    }
}

#[tokio::test]
async fn groups_that_the_token_leaves_out_are_fetched() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider);
    let login = client.begin_device().await.unwrap();
    provider.set_fault(Fault::ThinToken);
    provider.decide(&login.user_code, ann());
    let DeviceAnswer::Allowed(person) = answer(&client, &login).await.unwrap() else {
        panic!("allowed");
    };
    assert_eq!((person.name.as_deref(), person.groups.len()), (Some("ann"), 2));
}

#[tokio::test]
async fn an_answer_that_a_terminal_must_not_show_is_refused() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider);
    let long = "x".repeat(5000);
    for (fields, words) in [
        (json!({"user_code": "A\u{1b}[31m"}), "code for the person"),
        (json!({"user_code": ""}), "code for the person"),
        (json!({"user_code": long}), "code for the person"),
        (
            json!({"verification_uri": "http://192.0.2.1/activate"}),
            "verification_uri has no TLS",
        ),
        (json!({"verification_uri": "javascript:alert(1)"}), "verification_uri"),
        (json!({"verification_uri": "file:///etc/passwd"}), "verification_uri"),
        (json!({"verification_uri": "activate"}), "verification_uri is not a URL"),
        (
            json!({"verification_uri": format!("https://a.example/{long}")}),
            "too long",
        ),
        (
            json!({"verification_uri_complete": "http://192.0.2.1/"}),
            "verification_uri_complete has no TLS",
        ),
        (json!({"device_code": ""}), "device code has 0 bytes"),
        (json!({"device_code": long}), "device code has 5000 bytes"),
        (json!({"device_code": 1_234_567}), "not understood: line 1"),
        (json!({"expires_in": 0}), "no time"),
        (json!({"expires_in": -5}), "not understood"),
    ] {
        provider.set_device_answer(fields.clone());
        let refused = client.begin_device().await;
        let Err(LoginError::Unavailable(why)) = refused else {
            panic!("{fields}: {refused:?}");
        };
        assert!(why.contains(words), "{fields}: {why}");
        assert!(!why.contains("1234567"), "the secret is in the error: {why}");
    }
    provider.set_device_answer(json!({"verification_uri": "https://a.example/\u{1b}[2J"}));
    let login = client.begin_device().await.unwrap();
    assert_eq!(login.url, "https://a.example/%1B[2J", "no control characters");
}

#[tokio::test]
async fn times_of_the_provider_have_limits() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider);
    for (fields, times) in [
        (json!({"interval": 0, "expires_in": 1_000_000}), (1800, 1)),
        (json!({"interval": 10, "expires_in": 60}), (60, 10)),
        (json!({"interval": 86400}), (600, 60)),
        (json!({"interval": Value::Null}), (600, 5)),
    ] {
        provider.set_device_answer(fields.clone());
        let login = client.begin_device().await.unwrap();
        assert_eq!((login.valid_s, login.interval_s), times, "{fields}");
    }
}

#[tokio::test]
async fn a_provider_without_device_codes_and_one_that_refuses_this_client_are_named() {
    let provider = Provider::start(|| NOW).await;
    let wrong = client_with(&provider, "wrong", "preferred_username")
        .begin_device()
        .await
        .unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "the provider gives no usable answer: it refuses this control plane: invalid_client"
    );
    provider.set_fault(Fault::NoDevices);
    let none = client(&provider).begin_device().await.unwrap_err();
    assert!(none.to_string().contains("device_authorization_endpoint"), "{none}");
    assert_eq!(provider.fetches("device"), 1);
}
