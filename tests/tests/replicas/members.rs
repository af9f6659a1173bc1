//! The end of a member's rights on another replica than the one that ends them, and an operator who is invited on a host.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rackwright_api::v1;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::program;
use rackwright_tests::web_console::OWN_PAGE;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::cluster::Cluster;

/// Time within which a replica notices the changes of others.
const ROUND: Duration = Duration::from_secs(10);

fn rackwright(login: &Path, words: &[&str]) -> String {
    let mut command = Command::new(program("rackwright"));
    let output = command.env("RACKWRIGHT_CONFIG", login).args(words).output();
    printed(&output.expect("the CLI can be started"))
}

fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The value after a flag in a login command.
fn after<'a>(text: &'a str, flag: &str) -> &'a str {
    let rest = text.split(flag).nth(1).and_then(|rest| rest.split_whitespace().next());
    rest.unwrap_or_else(|| panic!("{flag} is not in:\n{text}"))
}

fn log_in(cluster: &Cluster, name: &str, invitation: &str) -> std::path::PathBuf {
    let home = cluster.dir().join(name);
    let (ca, token) = (after(invitation, "--ca-sha256 "), after(invitation, "--token "));
    let server = &cluster.replicas[1].url;
    rackwright(
        &home,
        &["login", "--server", server, "--ca-sha256", ca, "--token", token],
    );
    home
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_ended_by_one_replica_end_on_the_other_and_the_host_invites_an_operator() {
    let cluster = Cluster::start(2, |_, _| String::new()).await;
    let made = rackwright(&cluster.login, &["token", "create", "mallory", "--role", "operator"]);
    let home = log_in(&cluster, "mallory", &made);
    let read = |name: &str| std::fs::read_to_string(home.join(name)).expect("the login left it");
    let identity = read("default.pem");
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("default.ca.pem")))
        .identity(Identity::from_pem(&identity, &identity));
    let endpoint = Endpoint::from_shared(cluster.replicas[1].url.clone()).expect("a URL");
    let channel = endpoint.tls_config(tls).expect("the files are PEM").connect_lazy();
    let mut events = EventServiceClient::new(channel)
        .stream_events(v1::StreamEventsRequest::default())
        .await
        .expect("an operator follows events")
        .into_inner();
    let first = &cluster.replicas[0].url;
    rackwright(&cluster.login, &["--server", first, "member", "delete", "mallory"]);
    let code = tokio::time::timeout(ROUND, async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    });
    assert_eq!(code.await.expect("the stream ends"), Code::Unauthenticated);

    let config = cluster.dir().join("replica-0/rackwrightd.yaml");
    let mut invite = Command::new(program("rackwrightd"));
    invite.args([
        "invite-operator",
        "--name",
        "oscar",
        "--reason",
        "a test of it",
        "--config",
    ]);
    let invited = printed(&invite.arg(config).output().expect("rackwrightd can be started"));
    let events = rackwright(&cluster.login, &["events", "--target", "members/oscar", "-o", "json"]);
    assert!(
        events.contains("security.operator-invited-locally") && events.contains("a test of it"),
        "{events}"
    );
    let home = log_in(&cluster, "oscar", &invited);
    assert!(rackwright(&home, &["whoami"]).contains("operator"));
}

/// A request to a replica's web console, as one of its pages sends it. The tests of the console check certificates.
fn page(url: &str, arguments: &[&str]) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--no-buffer"]);
    curl.args(["--max-time", "60"]).args(OWN_PAGE).args(arguments).arg(url);
    curl
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ended_by_one_replica_ends_its_streams_on_the_other() {
    let ports = [free_port(), free_port()];
    let web = |number: usize| format!("web: {{listen: '127.0.0.1:{}'}}\n", ports[number]);
    let cluster = Cluster::start(2, |_, number| web(number)).await;
    let first = cluster.replicas[0].url.clone();
    let console = |path: &str| format!("https://127.0.0.1:{}{path}", ports[1]);
    let jar = cluster.dir().join("cookies").display().to_string();

    let opened = ["--server", &first, "console", "open", "--print", "-o", "json"];
    let opened: serde_json::Value = serde_json::from_str(&rackwright(&cluster.login, &opened)).expect("JSON");
    let (_, token) = opened["url"]
        .as_str()
        .expect("a URL")
        .rsplit_once('#')
        .expect("a token");
    let token = format!("{{\"token\": \"{token}\"}}");
    printed(
        &page(
            &console("/auth/login"),
            &["--fail", "--cookie-jar", &jar, "--json", &token],
        )
        .output()
        .expect("curl can be started"),
    );

    // REST: each event is a line. The login itself is no event of the stream's beginning, so the answer begins at once.
    let headers = cluster.dir().join("headers");
    let dumped = headers.display().to_string();
    let arguments = ["--cookie", &jar, "--dump-header", &dumped];
    let mut stream = page(&console("/v1/events:stream"), &arguments);
    let stream = stream
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl can be started");
    let accepted = tokio::time::timeout(ROUND, async {
        while !std::fs::read_to_string(&headers).is_ok_and(|text| text.contains(" 200")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    accepted.await.expect("the stream is accepted");

    let sessions = rackwright(&cluster.login, &["--server", &first, "session", "list", "-o", "json"]);
    let sessions: serde_json::Value = serde_json::from_str(&sessions).expect("JSON");
    let id = sessions[0]["name"]
        .as_str()
        .expect("a name")
        .trim_start_matches("sessions/");
    rackwright(&cluster.login, &["--server", &first, "session", "end", id]);
    let ended = tokio::task::spawn_blocking(move || stream.wait_with_output());
    let ended = tokio::time::timeout(ROUND, ended).await.expect("the stream ends");
    let said = printed(&ended.expect("no thread panicked").expect("curl ends"));
    assert!(said.contains("UNAUTHENTICATED"), "{said}");
    let refused = page(&console("/v1/nodes"), &["--cookie", &jar])
        .output()
        .expect("curl can be started");
    assert!(printed(&refused).contains("UNAUTHENTICATED"));
}
