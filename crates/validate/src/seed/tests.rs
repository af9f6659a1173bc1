use rackwright_identity::{SshKeyPair, SystemRng};
use serde_json::Value;

use super::*;

const DIGEST: &str = "b3-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn key(comment: &str) -> SshKeyPair {
    SshKeyPair::generate(&SystemRng, comment).unwrap()
}

fn spec() -> SeedSpec {
    let host = key("gpu-001");
    SeedSpec {
        instance_id: "gpu-001-7".into(),
        hostname: "gpu-001.rack.example".into(),
        provisioning_public_key: key("provisioning \"quoted\" # not a comment: {}").public_line().into(),
        customer_keys: vec![key("alice@acme").public_line().into()],
        host_private_key: host.private_key().clone(),
        host_public_key: host.public_line().into(),
        macs: vec!["52:54:00:AA:BB:01".into(), "52:54:00:aa:bb:02".into()],
        image_digest: DIGEST.into(),
        generation: 7,
        user_data: None,
    }
}

fn with(change: impl FnOnce(&mut SeedSpec)) -> Result<BTreeMap<String, Vec<u8>>, SeedError> {
    let mut spec = spec();
    change(&mut spec);
    seed(&spec)
}

fn text(files: &BTreeMap<String, Vec<u8>>, path: &str) -> String {
    String::from_utf8(files[path].clone()).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The bodies of a MIME archive, decoded.
fn parts(archive: &str) -> Vec<String> {
    let decode = |part: &str| {
        let body: String = part.split_once("\n\n").unwrap().1.split_whitespace().collect();
        String::from_utf8(BASE64_STANDARD.decode(body).unwrap()).unwrap()
    };
    let pieces: Vec<&str> = archive.split(&format!("--{BOUNDARY}")).collect();
    assert_eq!(pieces.last(), Some(&"--\n"));
    pieces[1..pieces.len() - 1].iter().map(|part| decode(part)).collect()
}

#[test]
fn every_reader_finds_the_same_values() {
    let spec = spec();
    let files = seed(&spec).unwrap();
    let keys = vec![spec.provisioning_public_key.clone(), spec.customer_keys[0].clone()];
    let meta = yaml(&text(&files, "meta-data"));
    assert_eq!(meta["instance-id"], "gpu-001-7");
    assert_eq!(meta["local-hostname"], "gpu-001.rack.example");
    assert_eq!(meta["public-keys"], json!(keys));
    assert_eq!(
        text(&files, "rackwright/authorized_keys"),
        format!("{}\n{}\n", keys[0], keys[1])
    );

    let user_text = text(&files, "user-data");
    assert!(user_text.starts_with("#cloud-config\n"));
    let user = yaml(&user_text);
    let marker = format!("digest={DIGEST}\ngeneration=7\n");
    assert_eq!(user["write_files"][0]["content"], marker.as_str());
    assert_eq!(user["write_files"][0]["permissions"], "0644");
    assert_eq!(text(&files, "rackwright/image"), marker);
    assert_eq!(
        (&user["disable_root"], &user["ssh_deletekeys"]),
        (&json!(false), &json!(true))
    );
    let private = spec.host_private_key.expose_secret();
    assert_eq!(user["ssh_keys"]["ed25519_private"], private);
    assert_eq!(text(&files, "rackwright/ssh_host_ed25519_key"), private);
    assert_eq!(
        text(&files, "rackwright/ssh_host_ed25519_key.pub"),
        format!("{}\n", spec.host_public_key)
    );
    assert_eq!(text(&files, "rackwright/hostname"), "gpu-001.rack.example\n");
    assert_eq!(text(&files, "rackwright/instance-id"), "gpu-001-7\n");

    let network = yaml(&text(&files, "network-config"));
    assert_eq!(network["ethernets"]["net0"]["match"]["macaddress"], "52:54:00:aa:bb:01");
    assert_eq!(network["ethernets"]["net0"]["optional"], false);
    assert_eq!(network["ethernets"]["net1"]["set-name"], "net1");
    assert!(!with(|s| s.macs.clear()).unwrap().contains_key("network-config"));
    assert!(!format!("{spec:?}").contains("OPENSSH PRIVATE"));
}

#[test]
fn a_key_line_can_be_taken_out_of_the_meta_data() {
    let spec = SeedSpec {
        customer_keys: Vec::new(),
        ..spec()
    };
    let meta = text(&seed(&spec).unwrap(), "meta-data");
    let blob = blob(&spec.provisioning_public_key);
    let left: String = meta
        .lines()
        .filter(|line| !line.contains(blob))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(left.lines().count() + 1, meta.lines().count());
    assert_eq!(yaml(&left)["public-keys"], Value::Null);
}

#[test]
fn the_customers_user_data_comes_first_and_whole() {
    let customers = "#cloud-config\nwrite_files:\n- {path: /x, content: ü}\nssh_keys: {}\n--==rackwright-seed==--\n";
    let files = with(|s| s.user_data = Some(customers.into())).unwrap();
    let parts = parts(&text(&files, "user-data"));
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[0], customers);
    let (appended, ours) = (yaml(&parts[1]), yaml(&parts[2]));
    assert!(appended["merge_how"].as_str().unwrap().contains("list(append)"));
    assert!(ours.get("write_files").is_none() && ours.get("ssh_keys").is_some());
    assert_eq!(appended["write_files"][0]["path"], "/etc/rackwright/image");
}

#[test]
fn user_data_that_would_be_lost_is_refused() {
    for bad in [
        "",
        "hello",
        "hostname: x\n",
        "Content-Type: multipart/mixed\n\n",
        " mime-version: 1.0",
        "#!/bin/sh\n\0",
    ] {
        let result = with(|s| s.user_data = Some(bad.into()));
        assert!(matches!(result, Err(SeedError::UserData(_))), "{bad:?}");
    }
    assert!(with(|s| s.user_data = Some(format!("#{}", "x".repeat(USER_DATA_MAX)))).is_err());
    assert!(with(|s| s.user_data = Some("#!/bin/sh\necho hi\n".into())).is_ok());
}

#[test]
fn hostile_names_are_refused() {
    let long = format!("{}.example", "a".repeat(60));
    for name in [
        "",
        "a b",
        "a\nb",
        "-a",
        "a-",
        "a..b",
        ".a",
        "a_b",
        "GPU",
        "ä",
        "10.0.0.1",
        "$(reboot)",
        "'",
        &long,
    ] {
        assert!(
            matches!(with(|s| s.hostname = name.into()), Err(SeedError::Hostname(_))),
            "{name:?}"
        );
    }
    for id in ["", "a/b", "a b", "a\n", "../x", &"x".repeat(65)] {
        assert!(
            matches!(with(|s| s.instance_id = id.into()), Err(SeedError::InstanceId(_))),
            "{id:?}"
        );
    }
    for digest in [
        "",
        "b3-00",
        &DIGEST.to_uppercase(),
        &format!("{DIGEST}0"),
        &DIGEST.replace('0', "g"),
    ] {
        assert!(
            matches!(with(|s| s.image_digest = digest.into()), Err(SeedError::Digest(_))),
            "{digest:?}"
        );
    }
    for mac in [
        "",
        "52:54:00:aa:bb",
        "52:54:00:aa:bb:0g",
        "52-54-00-aa-bb-01",
        "5:54:00:aa:bb:01",
    ] {
        assert!(
            matches!(with(|s| s.macs = vec![mac.into()]), Err(SeedError::Mac(_))),
            "{mac:?}"
        );
    }
    let many = with(|s| s.macs = vec!["52:54:00:aa:bb:01".into(); NICS_MAX + 1]);
    assert_eq!(many, Err(SeedError::TooManyNics(NICS_MAX + 1)));
}

#[test]
fn a_refusal_names_the_rule_that_was_broken() {
    let refused = |change: fn(&mut SeedSpec)| with(change).unwrap_err().to_string();
    for (text, rule) in [
        (refused(|s| s.hostname = "a-".into()), "neither begins nor ends with -"),
        (
            refused(|s| s.hostname = "10.0.0.1".into()),
            "other than digits and dots",
        ),
        (refused(|s| s.image_digest = DIGEST.to_uppercase()), "in lower case"),
        (
            refused(|s| s.macs = vec!["52-54-00-aa-bb-01".into()]),
            "in the form 52:54:00:77:00:01",
        ),
        (
            refused(|s| s.macs = vec!["52:54:00:aa:bb:01".into(); NICS_MAX + 1]),
            "65 network interfaces are too many: a seed describes at most 64",
        ),
    ] {
        assert!(text.contains(rule), "{text}");
    }
}

#[test]
fn hostile_keys_are_refused() {
    let good = spec().customer_keys[0].clone();
    let body = blob(&good).to_owned();
    for (line, says) in [
        (String::new(), "empty"),
        (format!("{good}\nssh-ed25519 {body} second"), "one line"),
        (format!("{good}\0"), "printable"),
        (format!("command=\"reboot\" {good}"), "options"),
        (format!("ssh-rsa {body}"), "not a public key"),
        ("ssh-ed25519 AAAA".into(), "not a public key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----".into(), "private key"),
        (key("alice").private_key().expose_secret().to_owned(), "private key"),
        (
            format!("-----BEGIN RSA PRIVATE KEY-----\n{}", "x".repeat(KEY_LINE_MAX)),
            "private key",
        ),
        (
            "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none".into(),
            "private key",
        ),
        (format!("{good} {}", "x".repeat(KEY_LINE_MAX)), "longer"),
    ] {
        let result = with(|s| s.customer_keys = vec![line.clone()]);
        assert!(
            matches!(&result, Err(SeedError::Key { which, why }) if which == "SSH key 1" && why.contains(says)),
            "{line:?}: {result:?}"
        );
    }
    let result = with(|s| s.customer_keys = vec![s.provisioning_public_key.clone()]);
    assert!(matches!(result, Err(SeedError::Key { why, .. }) if why.contains("provisioning")));
    assert!(matches!(
        with(|s| s.customer_keys = vec![good.clone(); KEYS_MAX + 1]),
        Err(SeedError::TooManyKeys(_))
    ));
    let comment = format!("ssh-ed25519 {body} half of my PRIVATE KEY");
    assert!(
        with(|s| s.customer_keys = vec![comment]).is_ok(),
        "a comment is free text"
    );
    let twice = with(|s| s.customer_keys = vec![good.clone(), format!(" {good} ")]).unwrap();
    assert_eq!(text(&twice, "rackwright/authorized_keys").lines().count(), 2);
}

#[test]
fn a_host_key_of_another_pair_is_refused() {
    for change in [
        |s: &mut SeedSpec| s.host_public_key = key("other").public_line().into(),
        |s: &mut SeedSpec| s.host_private_key = "nonsense".to_owned().into(),
        |s: &mut SeedSpec| s.host_public_key = "ssh-ed25519".into(),
    ] {
        assert!(matches!(with(change), Err(SeedError::Key { which, .. }) if which == "the host key"));
    }
}

/// Usual kinds of customers' keys, made by ssh-keygen.
#[test]
fn customers_may_use_the_usual_kinds_of_keys() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let path = dir.path().join(kind);
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-t", kind, "-N", "", "-f"])
            .arg(&path)
            .status();
        assert!(made.expect("ssh-keygen (openssh-client) is needed").success());
        let line = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        with(|s| s.customer_keys = vec![line.clone()]).unwrap_or_else(|e| panic!("{kind}: {e}"));
    }
}
