//! Attacks on the web console: other sites, stolen sessions and API keys, callers without a login.

use rackwright_tests::web_console::{Console, OWN_PAGE};

/// The HTTP status of a request.
fn status(console: &Console, arguments: &[&str], path: &str) -> String {
    // Over HTTP/2 some versions of curl lose an answer that comes before they have sent the body.
    let arguments = [&["--http1.1"], arguments].concat();
    let (status, _) = console.curl(&arguments, path);
    status.split(' ').next().expect("a status").to_owned()
}

/// Arguments of a call with a session, as a page of the console sends it.
fn of_page<'a>(jar: &'a str, json: &'a str) -> Vec<&'a str> {
    [&OWN_PAGE[..], &["--cookie", jar, "--json", json]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_site_cannot_use_a_members_session() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let jar = console.log_in(&console.plane.site.dir().join("cli"));
    let call = "/rackwright.v1.AuthService/WhoAmI";
    assert_eq!(status(&console, &of_page(&jar, "{}"), call), "200");
    for header in [
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Origin: https://evil.example",
        "Origin: null",
        "X-Nothing: at-all",
    ] {
        for path in [call, "/auth/logout"] {
            let forged = ["--cookie", &jar, "--json", "{}", "--header", header];
            assert_eq!(status(&console, &forged, path), "403", "{header} {path}");
        }
        // What a form of another site can send: no JSON.
        let form = ["--cookie", &jar, "--data", "name=nodes/n1", "--header", header];
        let refused = status(&console, &form, "/v1/nodes/n1:release");
        assert!(["400", "403", "415"].contains(&refused.as_str()), "{header}: {refused}");
    }
    assert_eq!(
        status(&console, &of_page(&jar, "{}"), call),
        "200",
        "the session was not ended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_session_ends_with_its_member_and_gets_no_certificate() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let home = console.join("mallory", &["--role", "operator"]);
    let jar = console.log_in(&home);
    let mutation = |key: &str| format!("{{\"mutation\": {{\"idempotencyKey\": \"{key}\"}}}}");
    for (path, json) in [
        ("AuthService/RenewCredential", "{\"csrPem\": \"x\"}".to_owned()),
        ("SessionService/CreateLoginToken", mutation("a")),
        (
            "AuthService/CreateToken",
            "{\"member\": \"mallory\", \"role\": \"ROLE_OPERATOR\", \"mutation\": {\"idempotencyKey\": \"c\"}}"
                .to_owned(),
        ),
    ] {
        let path = format!("/rackwright.v1.{path}");
        assert_eq!(status(&console, &of_page(&jar, &json), &path), "403", "{path}");
    }
    // An API key that the thief makes is seen, and ends with the member.
    let json = "{\"label\": \"x\", \"mutation\": {\"idempotencyKey\": \"b\"}}";
    let (_, made) = console.curl(&of_page(&jar, json), "/rackwright.v1.SessionService/CreateApiKey");
    let made: serde_json::Value = serde_json::from_str(&made).expect("a key");
    let bearer = format!("Authorization: Bearer {}", made["key"].as_str().expect("a key"));
    let with_key = ["--header", bearer.as_str()];
    assert_eq!(status(&console, &with_key, "/v1/whoami"), "200");
    assert!(console.plane.site.cli(["api-key", "list"]).contains("mallory"));
    console.plane.site.cli(["member", "revoke", "mallory"]);
    assert_eq!(status(&console, &with_key, "/v1/whoami"), "401");
    assert_eq!(
        status(&console, &of_page(&jar, "{}"), "/rackwright.v1.AuthService/WhoAmI"),
        "401"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_api_key_has_only_its_role_and_opens_nothing_that_lasts() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let made = console
        .plane
        .site
        .json(["api-key", "create", "a report", "--role", "viewer"]);
    let bearer = format!("Authorization: Bearer {}", made["key"].as_str().expect("a key"));
    let call = |path: &str, json: &str| {
        let arguments = ["--header", &bearer, "--json", json];
        status(&console, &arguments, &format!("/rackwright.v1.{path}"))
    };
    assert_eq!(call("AuthService/WhoAmI", "{}"), "200");
    for (path, json) in [
        (
            "NodeService/ReleaseNode",
            "{\"name\": \"nodes/n1\", \"mutation\": {\"idempotencyKey\": \"a\"}}",
        ),
        ("AuthService/RenewCredential", "{\"csrPem\": \"x\"}"),
        (
            "SessionService/CreateApiKey",
            "{\"label\": \"x\", \"mutation\": {\"idempotencyKey\": \"b\"}}",
        ),
        (
            "SessionService/CreateLoginToken",
            "{\"mutation\": {\"idempotencyKey\": \"c\"}}",
        ),
    ] {
        assert_eq!(call(path, json), "403", "{path}");
    }
    let key = made["key"].as_str().expect("a key");
    let as_cookie = format!("__Host-rackwright={key}");
    let arguments = [&OWN_PAGE[..], &["--cookie", &as_cookie]].concat();
    assert_eq!(status(&console, &arguments, "/v1/whoami"), "401", "a key is no session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_login_no_body_is_read_and_no_call_is_open() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let large = dir.path().join("large");
    let file = std::fs::File::create(&large).expect("a file");
    file.set_len(64 << 20).expect("a long file");
    let data = format!("@{}", large.display());
    let json = ["--data-binary", &data, "--header", "Content-Type: application/json"];
    for path in [
        "/v1/nodes",
        "/rackwright.v1.AgentService/Register",
        "/rackwright.v1.AuthService/BeginDeviceLogin",
        "/rackwright.v1.AuthService/FinishDeviceLogin",
        "/rackwright.v1.AuthService/RedeemToken",
        "/rackwright.v1.ControlService/ProveDatabase",
        "/rackwright.v1.SessionService/OpenSession",
    ] {
        let begun = std::time::Instant::now();
        assert_eq!(status(&console, &json, path), "401", "{path}");
        assert!(begun.elapsed().as_secs() < 10, "{path} took {:?}", begun.elapsed());
    }
    let login = [&OWN_PAGE[..], &json[..]].concat();
    assert_eq!(
        status(&console, &login, "/auth/login"),
        "429",
        "a login has at most 64 KiB"
    );
}
