//! First contact, credentials, contexts.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rackwright_api::v1::FinishDeviceLoginResponse;
use tonic::Status;

use crate::fake::{Fake, TOKEN};
use crate::golden::Script;
use crate::program::Program;

#[test]
fn login_and_later_commands() {
    let fake = Fake::start();
    let program = Program::new();
    let mut script = Script::default();
    script.run(&program, &["whoami"]);
    script.run(
        &program,
        &[
            "login",
            "--server",
            &fake.url(),
            "--token",
            TOKEN,
            "--ca-sha256",
            &fake.authority.pin(),
        ],
    );
    script.run(&program, &["whoami"]);
    script.run(&program, &["whoami", "-o", "name"]);
    script.run(
        &program,
        &["token", "create", "bob", "--role", "viewer", "--lifetime", "2h"],
    );
    script.run(&program, &["token", "create", "bob", "--role", "king"]);
    script.run(&program, &["context", "list"]);
    script.run(&program, &["--context", "other", "whoami"]);
    script.run(&program, &["context", "delete", "default"]);
    script.run(&program, &["context", "list", "-o", "json"]);
    script.check("login", &program);
    assert!(!program.config("default.pem").exists());
}

#[test]
fn credentials_are_private_and_in_their_folder() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    for file in ["config.yaml", "default.pem", "default.ca.pem"] {
        let mode = std::fs::metadata(program.config(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(
        std::fs::read_to_string(program.config("default.ca.pem"))
            .unwrap()
            .replace('\r', ""),
        fake.authority.pem.replace('\r', "")
    );
}

#[test]
fn a_server_with_another_authority_is_refused_before_the_token_is_sent() {
    let fake = Fake::start();
    let program = Program::new();
    let other = format!("sha256:{}", "00".repeat(32));
    let mut script = Script::default();
    script.run(
        &program,
        &[
            "login",
            "--server",
            &fake.url(),
            "--token",
            TOKEN,
            "--ca-sha256",
            &other,
        ],
    );
    script.check("login_pin_mismatch", &program);
    assert!(
        !fake.state().token_redeemed,
        "the token must not reach the wrong server"
    );
    assert!(!program.config("config.yaml").exists());
}

#[test]
fn a_pin_that_does_not_sign_the_server_is_refused() {
    // The chain contains the pinned authority, but the server's certificate is for another name.
    let fake = Fake::start_for(&["rack.example"]);
    let program = Program::new();
    let refused = program.login(&fake, &fake.url());
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("--tls-name"), "{refused:?}");
    assert!(!fake.state().token_redeemed);
    let pin = fake.authority.pin();
    let url = fake.url();
    let arguments = [
        "login",
        "--server",
        &url,
        "--token",
        TOKEN,
        "--ca-sha256",
        &pin,
        "--tls-name",
        "rack.example",
    ];
    let login = program.run(&arguments);
    assert_eq!(login.code, 0, "{login:?}");
    let whoami = program.run(&["whoami"]);
    assert_eq!(whoami.code, 0, "the name is kept: {whoami:?}");
}

#[test]
fn wrong_tokens_and_wrong_addresses() {
    let fake = Fake::start();
    let program = Program::new();
    let pin = fake.authority.pin();
    let mut script = Script::default();
    script.run(
        &program,
        &[
            "login",
            "--server",
            &fake.url(),
            "--token",
            "wrong",
            "--ca-sha256",
            &pin,
        ],
    );
    script.run(
        &program,
        &[
            "login",
            "--server",
            "http://127.0.0.1:1",
            "--token",
            TOKEN,
            "--ca-sha256",
            &pin,
        ],
    );
    script.run(
        &program,
        &[
            "login",
            "--server",
            "https://127.0.0.1:1",
            "--token",
            TOKEN,
            "--ca-sha256",
            &pin,
        ],
    );
    script.run(&program, &["login", "--token", TOKEN, "--ca-sha256", &pin]);
    script.run(
        &program,
        &[
            "login",
            "--server",
            &fake.url(),
            "--token",
            TOKEN,
            "--ca-sha256",
            "sha256:12",
        ],
    );
    script.check("login_wrong", &program);
}

/// An answer while the person has not decided.
fn pending(slow_down: bool) -> Result<FinishDeviceLoginResponse, Status> {
    Ok(FinishDeviceLoginResponse {
        credential: None,
        slow_down,
    })
}

#[test]
fn a_login_at_the_identity_provider() {
    let fake = Fake::start();
    let program = Program::new();
    let (url, pin) = (fake.url(), fake.authority.pin());
    for (arguments, words) in [
        (&["login", "--oidc"][..], "no server is given"),
        (&["login", "--oidc", "--server", &url], "give it with --ca-sha256"),
        (&["login", "--oidc", "--server", &url, "--token", TOKEN], "--token"),
    ] {
        let refused = program.run(arguments);
        assert!(refused.code == 2 && refused.stderr.contains(words), "{refused:?}");
    }
    fake.state().device_answers = [pending(false), pending(false)].into();
    let first = program.run(&["login", "--oidc", "--server", &url, "--ca-sha256", &pin]);
    assert_eq!(first.code, 0, "{first:?}");
    for words in [
        "Open this page of the  [31mlab in any browser, until ",
        "\n\n  https://login.example/activate?user_code=WDJB-MJHT\n\n",
        "Allow the login only if the page shows this code: WDJB-MJHT\n",
    ] {
        assert!(first.stderr.contains(words), "{first:?}");
    }
    assert!(
        first.stdout.starts_with("logged in as ann (operator), context default"),
        "{first:?}"
    );
    assert!(
        first.stdout.contains("(then run `rackwright login --oidc` again)"),
        "{first:?}"
    );
    assert_eq!(fake.state().device_questions, 3);
    let whoami = program.run(&["whoami"]);
    assert!(
        whoami.stdout.contains("then run `rackwright login --oidc` again)"),
        "{whoami:?}"
    );

    // The context has the server and its authority. What the person has to do is shown with --quiet too.
    fake.state().has_no_complete_url = true;
    let again = program.run(&["login", "--oidc", "--quiet"]);
    assert!(again.code == 0 && again.stdout.is_empty(), "{again:?}");
    let asked = "  https://login.example/activate\n\nThe page asks for this code: WDJB-MJHT\n";
    assert!(again.stderr.contains(asked), "{again:?}");
    let other = program.run(&["login", "--oidc", "--name", "other"]);
    assert!(
        other.code == 2 && other.stderr.contains("no server is given"),
        "{other:?}"
    );
}

#[test]
fn a_refused_login_at_the_identity_provider_has_a_reason_and_a_hint() {
    let fake = Fake::start();
    let program = Program::new();
    let (url, pin) = (fake.url(), fake.authority.pin());
    for (refusal, hint) in [
        (
            Status::unauthenticated("the login was not allowed in time; begin another login"),
            "run `rackwright login --oidc` again",
        ),
        (
            Status::permission_denied("\"ann\" is in no group that may log in"),
            "your groups at the identity provider decide",
        ),
    ] {
        let words = format!("cannot log in: {}", refusal.message());
        fake.state().device_answers = [Err(refusal)].into();
        let refused = program.run(&["login", "--oidc", "--server", &url, "--ca-sha256", &pin]);
        let is_shown = refused.stderr.contains(&words) && refused.stderr.contains(hint);
        assert!(refused.code == 5 && is_shown, "{refused:?}");
    }
    let words = "this control plane has no logins with a device code";
    fake.refuse("BeginDeviceLogin", Status::failed_precondition(words));
    let refused = program.run(&["login", "--oidc", "--server", &url, "--ca-sha256", &pin]);
    assert!(refused.code == 4 && refused.stderr.contains(words), "{refused:?}");
    assert!(!program.config("config.yaml").exists());
}

#[test]
fn a_certificate_of_the_identity_provider_is_not_renewed() {
    let fake = Fake::start();
    fake.state().credential_left = Some(Duration::from_secs(3));
    let program = Program::new();
    let (url, pin) = (fake.url(), fake.authority.pin());
    let login = program.run(&["login", "--oidc", "--server", &url, "--ca-sha256", &pin]);
    assert_eq!(login.code, 0, "{login:?}");
    let first = std::fs::read_to_string(program.config("default.pem")).unwrap();
    // In the last third of its life, and after its end.
    let ended = loop {
        let whoami = program.run(&["whoami"]);
        match whoami.code {
            0 => std::thread::sleep(Duration::from_millis(100)),
            _ => break whoami,
        }
    };
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(
        ended.stderr.contains("ended at") && ended.stderr.contains("run `rackwright login --oidc --name default`"),
        "{ended:?}"
    );
    assert_eq!(fake.state().renewals, 0);
    fake.state().credential_left = None;
    let again = program.run(&["login", "--oidc"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_ne!(first, std::fs::read_to_string(program.config("default.pem")).unwrap());
    assert_eq!(program.run(&["whoami"]).code, 0);
}

#[test]
fn a_login_at_the_identity_provider_slows_down_when_the_server_says_so() {
    let fake = Fake::start();
    fake.state().device_answers = [pending(true), pending(false)].into();
    let program = Program::new();
    let (url, pin) = (fake.url(), fake.authority.pin());
    let begun = std::time::Instant::now();
    let login = program.run(&["login", "--oidc", "--server", &url, "--ca-sha256", &pin]);
    assert_eq!(login.code, 0, "{login:?}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(10), "twice five seconds: {took:?}");
}

#[test]
fn the_token_can_come_from_a_file_or_standard_input() {
    let fake = Fake::start();
    let program = Program::new();
    let url = fake.url();
    let pin = fake.authority.pin();
    let arguments = ["login", "--server", &url, "--token-file", "-", "--ca-sha256", &pin];
    let login = program.run_with_input(&arguments, &format!("{TOKEN}\n"));
    assert_eq!(login.code, 0, "{login:?}");
}

#[test]
fn the_next_endpoint_is_used_when_the_first_does_not_answer() {
    let fake = Fake::start();
    let program = Program::new();
    let url = format!("https://127.0.0.1:1,{}", fake.url());
    let login = program.login(&fake, &url);
    assert_eq!(login.code, 0, "{login:?}");
    let whoami = program.run(&["whoami"]);
    assert_eq!(whoami.code, 0, "{whoami:?}");
}

#[test]
fn a_credential_is_renewed_in_its_last_third() {
    let fake = Fake::start();
    fake.state().credential_age = Duration::from_secs(8000);
    fake.state().credential_left = Some(Duration::from_secs(3000));
    let program = Program::logged_in(&fake);
    let before = std::fs::read_to_string(program.config("default.pem")).unwrap();
    assert_eq!(program.run(&["whoami"]).code, 0);
    assert_eq!(fake.state().renewals, 1);
    let after = std::fs::read_to_string(program.config("default.pem")).unwrap();
    assert_ne!(before, after, "the new certificate and key are stored");
    assert_eq!(program.run(&["whoami"]).code, 0, "and good");
    assert_eq!(fake.state().renewals, 1, "and not renewed again");
}

#[test]
fn a_failed_renewal_is_reported_and_the_command_continues() {
    let fake = Fake::start();
    fake.state().credential_age = Duration::from_secs(8000);
    fake.state().credential_left = Some(Duration::from_secs(3000));
    let program = Program::logged_in(&fake);
    fake.refuse("RenewCredential", Status::internal("no"));
    let whoami = program.run(&["whoami"]);
    assert_eq!(whoami.code, 0, "{whoami:?}");
    assert!(
        whoami.stderr.contains("could not be renewed") && whoami.stderr.contains("the credential ends at"),
        "{whoami:?}"
    );
}

#[test]
fn an_ended_credential_is_an_error_with_advice() {
    let fake = Fake::start();
    fake.state().credential_age = Duration::from_secs(8000);
    fake.state().credential_left = Some(Duration::ZERO);
    let program = Program::logged_in(&fake);
    let whoami = program.run(&["whoami"]);
    assert_eq!(whoami.code, 5, "{whoami:?}");
    assert!(
        whoami.stderr.contains("ended at") && whoami.stderr.contains("rackwright login"),
        "{whoami:?}"
    );
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    std::fs::set_permissions(program.config("default.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let whoami = program.run(&["whoami"]);
    assert_eq!(whoami.code, 5, "{whoami:?}");
    assert!(whoami.stderr.contains("chmod 600"), "{whoami:?}");
}

#[test]
fn a_server_with_a_changed_authority_is_not_trusted() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let other = Fake::start();
    let refused = program.run(&["whoami", "--server", &other.url()]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(other.state().calls.is_empty());
}

#[test]
fn members_and_tokens() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    for arguments in [
        &["member", "list"][..],
        &["member", "list", "-o", "name"],
        &["member", "set-role", "bob@acme", "customer-admin"],
        &["member", "revoke", "bob@acme"],
        &["member", "revoke", "members/ann", "-o", "json"],
        &["member", "delete", "bob@acme"],
        &["member", "delete", "nobody"],
        &["token", "list"],
        &["token", "delete", "0123456789abcdef"],
        &["token", "delete", "feedfeedfeedfeed"],
    ] {
        script.run(&program, arguments);
    }
    script.check("members", &program);
    for method in ["SetMemberRole", "RevokeMember", "DeleteMember", "DeleteToken"] {
        let keys = fake.keys(method);
        assert!(
            !keys.is_empty() && keys.iter().all(|key| !key.is_empty()),
            "{method}: {keys:?}"
        );
    }
}

#[test]
fn several_contexts() {
    let first = Fake::start();
    let second = Fake::start();
    let program = Program::logged_in(&first);
    let pin = second.authority.pin();
    let url = second.url();
    let arguments = [
        "login",
        "--server",
        &url,
        "--token",
        TOKEN,
        "--ca-sha256",
        &pin,
        "--name",
        "lab",
    ];
    assert_eq!(program.run(&arguments).code, 0);
    assert_eq!(program.run(&["whoami"]).code, 0);
    assert_eq!(second.keys("WhoAmI").len(), 1, "the newest context is the current one");
    assert_eq!(program.run(&["whoami", "--context", "default"]).code, 0);
    assert_eq!(first.keys("WhoAmI").len(), 1);
    assert_eq!(program.run(&["context", "use", "default"]).code, 0);
    assert_eq!(program.run(&["whoami"]).code, 0);
    assert_eq!(first.keys("WhoAmI").len(), 2);
    assert_eq!(program.run(&["context", "use", "nowhere"]).code, 5);
}

#[test]
fn sessions_and_api_keys() {
    let fake = Fake::start();
    let program = Program::logged_in(&fake);
    let mut script = Script::default();
    for arguments in [
        &["console", "open", "--print"][..],
        &["console", "open", "--print", "-o", "name"],
        &["session", "list"],
        &["session", "list", "-o", "name"],
        &["session", "end", "0a1b2c"],
        &["session", "end", "sessions/feed"],
        &[
            "api-key",
            "create",
            "nightly report",
            "--role",
            "viewer",
            "--lifetime",
            "30d",
        ],
        &["api-key", "create", "nightly report", "-o", "name"],
        &["api-key", "list"],
        &["api-key", "delete", "7d8e9f"],
        &["api-key", "delete", "feed"],
    ] {
        script.run(&program, arguments);
    }
    script.check("sessions", &program);
    for method in ["CreateLoginToken", "EndSession", "CreateApiKey", "DeleteApiKey"] {
        let keys = fake.keys(method);
        assert!(
            !keys.is_empty() && keys.iter().all(|key| !key.is_empty()),
            "{method}: {keys:?}"
        );
    }
}
