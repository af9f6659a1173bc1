//! Logins at a provider that gives valid and invalid tokens.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

mod client;
mod provider;

use client::{BACK, NOW, client_with};
use provider::{CLIENT, Fault, Provider, form};
use rackwright_oidc::{Answer, Client, LoginError, LoginSecrets, Person};
use secrecy::SecretString;
use serde_json::{Value, json};

fn client(provider: &Provider, member_claim: &str) -> Client {
    client_with(provider, CLIENT.1, member_claim)
}

/// Secrets of a login. Logins with other digits have other secrets.
fn secrets(digit: char) -> LoginSecrets {
    let text = |kind: &str| SecretString::from(format!("{kind}{}", digit.to_string().repeat(60)));
    LoginSecrets {
        state: text("s"),
        nonce: text("n"),
        verifier: text("v"),
    }
}

fn ann() -> Value {
    json!({
        "sub": "17",
        "preferred_username": "ann",
        "email": "ann@lab.example",
        "email_verified": true,
        "groups": ["ops", "all"],
    })
}

/// A login as far as the provider's answer.
async fn begun(client: &Client, provider: &Provider, claims: &Value) -> Answer {
    let url = client.begin(&secrets('1')).await.unwrap();
    let (code, state) = provider.log_in(&url, claims);
    Answer {
        code: code.into(),
        state: state.into(),
        issuer: Some(provider.issuer.clone()),
    }
}

async fn person(provider: &Provider, member_claim: &str, claims: &Value) -> Result<Person, LoginError> {
    let client = client(provider, member_claim);
    let answer = begun(&client, provider, claims).await;
    client.finish(&answer, &secrets('1')).await
}

#[tokio::test]
async fn a_valid_token_names_a_person_with_groups() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider, "preferred_username");
    let url = client.begin(&secrets('1')).await.unwrap();
    let query = form(url.split_once('?').unwrap().1.as_bytes());
    assert_eq!(
        (query["scope"].as_str(), query["redirect_uri"].as_str()),
        ("openid profile groups", BACK)
    );
    assert!(
        !url.contains("vvvv") && !url.contains("v111"),
        "the verifier stays here: {url}"
    );
    let (code, state) = provider.log_in(&url, &ann());
    let answer = Answer {
        code: code.into(),
        state: state.into(),
        issuer: Some(provider.issuer.clone()),
    };
    let wanted = Person {
        issuer: provider.issuer.clone(),
        subject: "17".into(),
        name: Some("ann".into()),
        groups: ["ops", "all"].map(str::to_owned).into(),
    };
    assert_eq!(client.finish(&answer, &secrets('1')).await.unwrap(), wanted);
    // The provider takes a code once.
    let again = client.finish(&answer, &secrets('1')).await;
    assert!(matches!(again, Err(LoginError::Invalid(_))), "{again:?}");
    assert_eq!((provider.fetches("description"), provider.fetches("keys")), (1, 1));
}

#[tokio::test]
async fn a_token_with_a_fault_logs_no_one_in() {
    for (fault, words) in [
        (Fault::Nonce, "nonce"),
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
    ] {
        let provider = Provider::start(|| NOW).await;
        provider.set_fault(fault);
        let refused = person(&provider, "preferred_username", &ann()).await;
        let Err(LoginError::Invalid(why)) = refused else {
            panic!("{fault:?}: {refused:?}");
        };
        assert!(why.contains(words), "{fault:?}: {why}");
    }
}

#[tokio::test]
async fn keys_are_fetched_again_for_an_unknown_key_and_not_at_each_login() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider, "preferred_username");
    let first = begun(&client, &provider, &ann()).await;
    client.finish(&first, &secrets('1')).await.unwrap();
    provider.set_fault(Fault::NewKey);
    let second = begun(&client, &provider, &ann()).await;
    client.finish(&second, &secrets('1')).await.unwrap();
    assert_eq!(provider.fetches("keys"), 2);
    provider.set_fault(Fault::UnknownKey);
    for _ in 0..3 {
        let third = begun(&client, &provider, &ann()).await;
        assert!(client.finish(&third, &secrets('1')).await.is_err());
    }
    assert_eq!(provider.fetches("keys"), 2, "within ten seconds");
}

#[tokio::test]
async fn logins_that_wait_for_new_keys_share_one_fetch_and_its_result() {
    for (fault, names_all) in [(Fault::NewKey, true), (Fault::NoKeys, false)] {
        let provider = Provider::start(|| NOW).await;
        let client = client(&provider, "preferred_username");
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(begun(&client, &provider, &ann()).await);
        }
        provider.set_fault(Fault::NewKey);
        provider.set_fault(fault);
        let own = secrets('1');
        let ends = tokio::join!(
            client.finish(&answers[0], &own),
            client.finish(&answers[1], &own),
            client.finish(&answers[2], &own),
        );
        for end in [ends.0, ends.1, ends.2] {
            match end {
                Ok(person) => assert!(names_all, "{person:?}"),
                Err(LoginError::Unavailable(why)) => assert!(!names_all && why.contains("503"), "{why}"),
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(
            provider.fetches("keys"),
            2,
            "{fault:?}: the first one, and one for all three"
        );
    }
}

#[tokio::test]
async fn an_answer_belongs_to_one_login_and_one_provider() {
    let provider = Provider::start(|| NOW).await;
    let client = client(&provider, "preferred_username");
    let good = begun(&client, &provider, &ann()).await;
    let with = |state: &str, issuer: Option<&str>| Answer {
        code: good.code.clone(),
        state: state.to_owned().into(),
        issuer: issuer.map(str::to_owned),
    };
    let state = format!("s{}", "1".repeat(60));
    for (answer, secrets) in [
        (with("another", Some(&provider.issuer)), secrets('1')),
        (with("", Some(&provider.issuer)), secrets('1')),
        (with(&state, Some(&provider.issuer)), secrets('2')),
        (with(&state, Some("https://evil.example")), secrets('1')),
        (with(&state, None), secrets('1')),
    ] {
        let refused = client.finish(&answer, &secrets).await;
        assert!(matches!(refused, Err(LoginError::Invalid(_))), "{refused:?}");
    }
    // Another login's proof of possession does not fit the code.
    let mixed = LoginSecrets {
        verifier: secrets('2').verifier,
        ..secrets('1')
    };
    let refused = client.finish(&good, &mixed).await;
    assert!(matches!(refused, Err(LoginError::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn claims_that_the_token_leaves_out_are_fetched_for_the_same_person() {
    let provider = Provider::start(|| NOW).await;
    provider.set_fault(Fault::ThinToken);
    let found = person(&provider, "email", &ann()).await.unwrap();
    assert_eq!(
        (found.name.as_deref(), found.groups.len()),
        (Some("ann@lab.example"), 2)
    );
    provider.set_fault(Fault::OtherPerson);
    assert!(person(&provider, "email", &ann()).await.is_err());
}

#[tokio::test]
async fn names_and_groups_come_from_the_claims_of_the_settings() {
    let provider = Provider::start(|| NOW).await;
    let of = async |member_claim: &str, claims: Value| {
        let found = person(&provider, member_claim, &claims).await.unwrap();
        (found.name, found.groups)
    };
    let mut claims = ann();
    claims["groups"] = "ops".into();
    assert_eq!(
        of("email", claims.clone()).await,
        (Some("ann@lab.example".into()), vec!["ops".into()])
    );
    claims["email_verified"] = false.into();
    claims["groups"] = json!([{"name": "ops"}, 7, "all"]);
    assert_eq!(
        of("email", claims.clone()).await,
        (None, vec!["all".into()]),
        "not verified"
    );
    claims["short"] = "a".into();
    assert_eq!(
        of("short", claims).await.0,
        Some("a".into()),
        "a claim that no standard knows"
    );
}

#[tokio::test]
async fn a_provider_that_is_away_is_not_asked_at_each_try() {
    let provider = Provider::start(|| NOW).await;
    let mut away = provider.clone();
    away.issuer = format!("{}/nothing", provider.issuer);
    let client = client(&away, "email");
    for _ in 0..2 {
        let refused = client.begin(&secrets('1')).await;
        assert!(matches!(refused, Err(LoginError::Unavailable(_))), "{refused:?}");
    }
}
