//! No secret is written to a readable place, however verbose the daemon's log is.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rackwright_sim::fleet::AccountRules;

use super::accounts::known;
use super::*;

/// The keys of the site, which are secrets themselves.
fn is_a_key(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("data/keys"))
}

/// All files below `folder` except keys and `except`, by path.
fn written(folder: &Path, except: &[&Path], found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if except.contains(&path.as_path()) {
            continue;
        }
        if path.is_dir() {
            written(&path, except, found);
        } else if path.is_file() && !is_a_key(&path) {
            let bytes = std::fs::read(&path).expect("the file can be read");
            found.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

fn holders<'a>(files: &'a [(String, String)], text: &str) -> Vec<&'a str> {
    let held = files.iter().filter(|(_, held)| held.contains(text));
    held.map(|(path, _)| path.as_str()).collect()
}

/// The base64 forms of a secret inside a larger encoded text: the letters that do not depend on the neighbouring bytes.
fn in_base64(secret: &str) -> [String; 3] {
    std::array::from_fn(|before| {
        let coded = STANDARD_NO_PAD.encode([&b"\0\0"[..before], secret.as_bytes()].concat());
        let end = (before + secret.len()) * 8 / 6;
        coded[(before * 8).div_ceil(6)..end].to_owned()
    })
}

/// With upper-case and lower-case digits.
fn in_a_url(secret: &str) -> [String; 2] {
    let letter = |byte: u8, coded: String| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => coded,
    };
    [
        secret
            .bytes()
            .map(|byte| letter(byte, format!("%{byte:02X}")))
            .collect(),
        secret
            .bytes()
            .map(|byte| letter(byte, format!("%{byte:02x}")))
            .collect(),
    ]
}

/// All forms in which a secret may be written.
fn forms(secret: &str) -> BTreeSet<String> {
    let coded = in_base64(secret);
    let for_urls = coded.each_ref().map(|text| text.replace('+', "-").replace('/', "_"));
    let mut forms = BTreeSet::from([secret.to_owned()]);
    forms.extend(in_a_url(secret).into_iter().chain(coded).chain(for_urls));
    forms
}

/// The files that contain one of these secrets in any form.
fn leaks<'a>(files: &'a [(String, String)], secrets: &[String]) -> BTreeSet<&'a str> {
    let forms = secrets.iter().flat_map(|secret| forms(secret));
    forms.flat_map(|form| holders(files, &form)).collect()
}

/// Checks that the search finds a planted secret in every form.
fn check_search(folder: &Path, secrets: &[String]) {
    let place = folder.join("planted.log");
    let path = place.display().to_string();
    for secret in secrets {
        let [upper, lower] = in_a_url(secret);
        let planted = [
            secret.clone(),
            STANDARD.encode(secret),
            STANDARD.encode(format!("admin:{secret}")),
            STANDARD.encode(format!("ad:{secret}\n")),
            URL_SAFE_NO_PAD.encode(format!("a:{secret}")),
            upper,
            lower,
        ];
        for text in planted {
            std::fs::write(&place, format!("12:00 DEBUG a line with {text} in it\n")).expect("the file can be written");
            let mut files = Vec::new();
            written(folder, &[], &mut files);
            files.retain(|(read, _)| *read == path);
            let found = leaks(&files, std::slice::from_ref(secret));
            assert!(found.contains(path.as_str()), "{secret} is not found as {text}");
        }
    }
    std::fs::remove_file(place).expect("it was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_readable_output_has_a_secret() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start_with(dir.path(), "pxe", "bmc_accounts: {}\n").await;
    plane.site.kill().await;
    plane.site.restart_logging("trace").await;
    let accounts = AccountRules {
        must_change: true,
        ..AccountRules::default()
    };
    let config = FleetConfig {
        accounts,
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let node = fleet.node(0);
    let (id, site) = (node.name(), &plane.site);
    let (user, first) = known(site, &id);
    site.cli(["node", "bmc-password", "rotate", &id, "--wait"]);
    let (_, second) = known(site, &id);
    let file = dir.path().join("disk.raw");
    std::fs::write(&file, vec![7; 1 << 20]).expect("the image can be written");
    let file = file.display().to_string();
    site.cli(["image", "add", "disk", "--file", &file]);
    let user_data = dir.path().join("user-data.yaml");
    let planted = "planted-password-of-a-customer".to_owned();
    std::fs::write(
        &user_data,
        format!("#cloud-config\nchpasswd: {{list: 'root:{planted}'}}\n"),
    )
    .expect("a file");
    let file = user_data.display().to_string();
    site.cli(["node", "deploy", &id, "--image", "disk", "--user-data", &file]);
    site.until(&id, &["rebooting"], TEST_LIMIT).await;
    site.cli(["node", "release", "--yes", &id]);
    site.until(&id, &["available"], TEST_LIMIT).await;
    let (_, third) = known(site, &id);
    let outputs = [
        site.cli(["events", "-o", "json"]),
        site.cli(["node", "explain", &id]),
        site.cli(["node", "get", &id, "-o", "json"]),
        site.cli(["operation", "list", "-o", "json"]),
    ];
    plane.site.stop().await;

    let mut files = Vec::new();
    // These files contain the factory's password, as given by an operator, and the customer's user data.
    let given = dir.path().join("nodes.yaml");
    written(dir.path(), &[&given, &user_data], &mut files);
    files.extend(outputs.map(|text| ("output of the CLI".to_owned(), text)));
    let log = files.iter().find(|(path, _)| path.ends_with("rackwrightd.log"));
    let (_, log) = log.expect("the daemon has a log");
    assert!(log.contains("TRACE"), "it did not log all that it can");
    // The search works: it finds an id, and would find a secret.
    assert!(holders(&files, &id).len() > 2);
    assert!(files.iter().any(|(path, _)| path.ends_with("rackwright.db")));
    let passwords = [node.password(), first, second, third];
    assert_eq!(
        leaks(&files, &passwords),
        BTreeSet::new(),
        "these hold a BMC's password"
    );
    assert_eq!(
        leaks(&files, std::slice::from_ref(&planted)),
        BTreeSet::new(),
        "these hold the user data of a customer"
    );
    let special = ["a+b c/\u{e4}\"?&%".to_owned(), format!("{user}:{}", passwords[0])];
    check_search(dir.path(), &[&passwords[..], &special].concat());
    let key = holders(&files, "PRIVATE KEY-----");
    assert!(
        key.iter().all(|path| path.contains("/cli")),
        "private keys are in {key:?}"
    );
    std::fs::write(
        dir.path().join("planted.log"),
        "DEBUG -----BEGIN EC PRIVATE KEY-----\\nMHc\n",
    )
    .expect("the file can be written");
    let mut files = Vec::new();
    written(dir.path(), &[&given, &user_data], &mut files);
    let key = holders(&files, "PRIVATE KEY-----");
    assert!(
        key.iter().any(|path| path.ends_with("planted.log")),
        "a key is not found"
    );
    fleet.stop().await;
}
