//! Tests of the settings file.

use super::*;

fn faults(text: &str) -> Vec<String> {
    match Config::parse(text, Path::new("test.yaml")) {
        Err(ConfigError::Faults { faults, .. }) => faults,
        Err(other) => vec![other.to_string()],
        Ok(_) => Vec::new(),
    }
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = "data_dir: var\nimages: {require_signature: true}\nboot:\n  ramdisk: {kernel: /no/such, initrd: /no/such}\n  \
                network:\n    server_ip: 0.0.0.0\n    dhcp: off\n    first_stages: {}\n";
    let faults = faults(text);
    for word in [
        "data_dir",
        "trusted_keys",
        "server_ip",
        "ramdisk.kernel",
        "ramdisk.initrd",
    ] {
        assert!(faults.iter().any(|f| f.contains(word)), "{word} not in {faults:?}");
    }
}

#[test]
fn an_unknown_field_names_its_line() {
    let faults = faults("data_dir: /x\nboot_interface: br0\n");
    assert!(
        faults[0].contains("boot_interface") && faults[0].contains('2'),
        "{faults:?}"
    );
}

#[test]
fn a_fault_in_each_part_is_reported_with_its_field_and_a_line_each() {
    let text = "data_dir: var\napi: {names: []}\nstore: {urls: [\"https://a/store\", \"ftp://b\", \"c\"]}\n\
                images: {require_signature: true}\npolicy: {tries: 0, boots: 0}\n\
                limits: {power_on: {per_rack: 0}, image: {per_node_mb_s: 100}}\nssh_port: 0\n\
                power_watch: {interval_s: 0, recheck_s: 9, streamed_s: 100000, streams: 99999, at_once: 0}\nboot:\n  \
                ramdisk: {kernel: /no/such, initrd: /no/such, arguments: \"quiet\\nsplash\"}\n  \
                network:\n    server_ip: 0.0.0.0\n    dhcp: off\n    first_stages: {}\n";
    let found = faults(text);
    let fields: Vec<_> = found.iter().filter_map(|f| f.split(':').next()).collect();
    let own = [
        "data_dir",
        "api.names",
        "store.urls",
        "store.urls",
        "images.require_signature",
        "policy.tries",
        "policy.boots",
        "limits.power_on.per_rack",
        "limits.image.per_node_mb_s",
        "ssh_port",
        "power_watch.interval_s",
        "power_watch.streamed_s",
        "power_watch.recheck_s",
        "power_watch.streams",
        "power_watch.at_once",
        "boot.ramdisk.kernel",
        "boot.ramdisk.initrd",
        "boot.ramdisk.arguments",
    ];
    assert_eq!(fields[..own.len()], own, "{found:?}");
    let network = &fields[own.len()..];
    assert!(!network.is_empty() && network.iter().all(|f| f.starts_with("boot.network.")));
    assert!(found.iter().any(|f| f.contains("\"ftp://b\"")));
    let shown = Config::parse(text, Path::new("test.yaml")).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), 1 + found.len(), "{shown}");
    assert!(shown.starts_with("test.yaml:\n  data_dir: "), "{shown}");
}

#[test]
fn a_faulty_profile_names_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("data_dir: /x\nbmc_quirks: {}\n", folder.path().display());
    let config = Config::parse(&text, Path::new("test.yaml")).unwrap();
    assert!(config.bmc_quirks.is_some());
    std::fs::write(folder.path().join("1.json"), r#"{"source": ["x"], "matchs": []}"#).unwrap();
    let found = faults(&text);
    assert!(
        found.len() == 1 && found[0].starts_with("bmc_quirks: ") && found[0].contains("1.json"),
        "{found:?}"
    );
    assert!(found[0].contains("matchs"), "{found:?}");
}

#[test]
fn the_address_of_traces_is_checked_and_its_headers_are_secrets() {
    for (telemetry, fault) in [
        (
            "{otlp: collector:4317}",
            "telemetry.otlp: \"collector:4317\" is not an http://",
        ),
        (
            "{otlp: \"https://a:4317\"}",
            "telemetry.ca_file: must be set with https://",
        ),
        (
            "{otlp: \"https://a:4317\", ca_file: /no/such}",
            "telemetry.ca_file: /no/such is not a file",
        ),
        (
            "{otlp: \"http://a:4317\", ca_file: /dev/null}",
            "telemetry.ca_file: has no effect without https://",
        ),
        (
            "{otlp: \"http://a:4317\", sample: 1.5}",
            "telemetry.sample: must be from 0 to 1",
        ),
        (
            "{otlp: \"http://a:4317\", sample: .nan}",
            "telemetry.sample: must be from 0 to 1",
        ),
        (
            "{otlp: \"http://a:4317\", headers: {\"a b\": sesame}}",
            "telemetry.headers: \"a b\" is not a header name",
        ),
        ("{otlp: \"http://a:4317\", headers: {a: sesame}, ratio: 1}", "ratio"),
    ] {
        let found = faults(&format!("data_dir: /x\ntelemetry: {telemetry}\n"));
        assert!(found.len() == 1 && found[0].contains(fault), "{telemetry}: {found:?}");
        assert!(!found[0].contains("sesame"), "{found:?}");
    }
    let text = "data_dir: /x\ntelemetry: {otlp: \"http://a:4317\", headers: {a: sesame}, sample: 0.5}\n";
    let config = Config::parse(text, Path::new("test.yaml")).unwrap();
    assert!(!format!("{config:?}").contains("sesame"));
}

#[test]
fn an_unknown_field_names_its_line_in_every_part() {
    for (text, field, line) in [
        ("data_dir: /x\nboot_interface: br0\n", "boot_interface", 2),
        ("data_dir: /x\napi:\n  name: [a]\n", "name", 3),
        ("data_dir: /x\nstore:\n  url: [a]\n", "url", 3),
        ("data_dir: /x\n\nimages:\n  trusted_key: [a]\n", "trusted_key", 4),
        ("data_dir: /x\npolicy:\n  tries: 1\n  retries: 3\n", "retries", 4),
        ("data_dir: /x\nlimits:\n  power_on: {per_row: 3}\n", "per_row", 3),
        (
            "data_dir: /x\nboot:\n  ramdisk:\n    kernel: /a\n    initrd: /b\n    cmdline: c\n",
            "cmdline",
            6,
        ),
    ] {
        let found = faults(text);
        let place = format!("line {line}");
        assert!(found[0].contains(field) && found[0].contains(&place), "{found:?}");
    }
}

#[test]
fn missing_fields_and_wrong_types_are_named() {
    for (text, word) in [
        ("site: x\n", "data_dir"),
        ("", "line 1"),
        ("data_dir: /x\napi: {listen: nowhere}\n", "socket address"),
        ("data_dir: /x\npolicy: {tries: -1}\n", "-1"),
        ("data_dir: /x\nboot: {}\n", "ramdisk"),
        ("data_dir: /x\nssh_port: 65536\n", "65536"),
        ("data_dir: [\n", "test.yaml"),
    ] {
        let found = faults(text);
        assert!(found[0].contains(word), "{text:?}: {found:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_its_cause() {
    let error = Config::load(Path::new("/no/such/rackwright.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "/no/such/rackwright.yaml cannot be read");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn given_values_are_used() {
    let text = "data_dir: /x\nsite: lab\napi: {listen: \"127.0.0.1:1\", names: [a, b]}\n\
                store: {listen: \"127.0.0.1:2\"}\npolicy: {tries: 1}\nssh_port: 8022\n";
    let config = Config::parse(text, Path::new("t")).unwrap();
    assert_eq!(
        config.store_urls,
        ["https://a:2/store/v1"],
        "the first name, the store's port"
    );
    assert_eq!(config.names, ["a", "b"]);
    assert_eq!(config.ssh_port, 8022);
    assert_eq!((config.site.as_str(), config.policy.tries), ("lab", 1));
    assert_eq!(config.policy.boots, Policy::default().boots);
    assert!(config.boot.is_none());
}

#[test]
fn the_database_is_a_file_or_a_server_and_its_password_is_not_shown() {
    let good = |more: &str| Config::parse(&format!("data_dir: /x\n{more}"), Path::new("t")).unwrap();
    assert_eq!(good("").database.to_string(), "/x/rackwright.db");
    assert_eq!(good("database: /y/site.db\n").database.to_string(), "/y/site.db");
    let server = good("database: postgres://u:hunter2@db.example/site\n");
    assert_eq!(server.database.to_string(), "postgres://u@db.example/site");
    assert!(!format!("{server:?}").contains("hunter2"));
    good("database: postgres://u@db.example/site\ndatabase_password_file: /etc/rackwright/password\n");
    for (text, word) in [
        ("database: site.db\n", "absolute path"),
        ("database: postgres://u:hunter2@db.example:port/site\n", "URL"),
        (
            "database: postgres://u:hunter2@h/site\ndatabase_password_file: /p\n",
            "keep one",
        ),
        ("database_password_file: /p\n", "must be set"),
    ] {
        let found = faults(&format!("data_dir: /x\n{text}"));
        assert!(
            found[0].starts_with("database: ") && found[0].contains(word),
            "{found:?}"
        );
        assert!(!found[0].contains("hunter2"), "{found:?}");
    }
    // A fault in another line must not show this line either.
    let found = faults("data_dir: /x\ndatabase: postgres://u:hunter2@h/site\nsiet: x\n");
    assert!(found[0].contains("siet") && !found[0].contains("hunter2"), "{found:?}");
}

#[test]
fn agents_get_all_replicas_this_one_first() {
    let api = |endpoints: &str| {
        format!("data_dir: /x\napi: {{names: [10.0.0.2], listen: \"0.0.0.0:7070\", endpoints: [{endpoints}]}}\n")
    };
    let good = |text: &str| Config::parse(text, Path::new("t")).unwrap().endpoints;
    let (a, b) = ("https://10.0.0.1:7070", "https://10.0.0.2:7070");
    assert_eq!(good(&api(&format!("{a:?}, {b:?}"))), [b, a]);
    assert_eq!(good(&api("")), [b], "the only one");
    for (list, word) in [
        (format!("{a:?}"), "this replica is missing: https://10.0.0.2:7070"),
        (format!("{b:?}, \"https://replica:7070\""), "do not resolve names"),
        (format!("{b:?}, \"http://10.0.0.1:7070\""), "https://ADDRESS:PORT"),
        (vec![format!("{b:?}"); 9].join(", "), "at most 8"),
    ] {
        let found = faults(&api(&list));
        assert!(
            found[0].starts_with("api.endpoints: ") && found[0].contains(word),
            "{found:?}"
        );
    }
}

#[test]
fn a_minimal_file_is_accepted() {
    let config = Config::parse("data_dir: /x\n", Path::new("t")).unwrap();
    assert_eq!(config.store_urls, ["https://localhost:7443/store/v1"]);
    assert_eq!(config.shared_dir, Path::new("/x"));
    let config = Config::parse("data_dir: /x\nshared_dir: /y\n", Path::new("t")).unwrap();
    assert_eq!(config.shared_dir, Path::new("/y"));
    assert_eq!(
        faults("data_dir: /x\nshared_dir: y\n"),
        ["shared_dir: must be an absolute path"]
    );
    assert_eq!(config.ssh_port, 22);
}

#[test]
fn each_fabric_has_a_manager_with_files_of_its_own() {
    let of = |fabric: &str| faults(&format!("data_dir: /x\nfabric: {fabric}\n"));
    let opensm = |name: &str| {
        format!(
            "{{opensm: {{partitions: /{name}/p, log: /{name}/l, pid_file: /{name}/pid}}, tools: {{adapter: mlx5_{name}}}}}"
        )
    };
    let (east, west) = (opensm("e"), opensm("w"));
    let both = format!("{{managers: {{east: {east}, west: {west}}}}}");
    assert_eq!(of(&both), [] as [&str; 0]);
    let config = Config::parse(&format!("data_dir: /x\nfabric: {both}\n"), Path::new("t")).unwrap();
    let settings = config.fabric.unwrap();
    assert_eq!(settings.fabrics().collect::<Vec<_>>(), ["east", "west"]);
    assert_eq!(settings.manager().unwrap().name(), "a manager for each fabric");

    assert_eq!(
        of(&format!("{{managers: {{east: {east}, west: {east}}}}}")),
        [
            "fabric.managers.west.tools: another manager reads the same port of this machine: name the adapter that is in this \
             fabric, such as mlx5_2",
            "fabric.managers.west.opensm.partitions: another OpenSM has the file /e/p already",
            "fabric.managers.west.opensm.log: another OpenSM has the file /e/l already",
            "fabric.managers.west.opensm.pid_file: another OpenSM has the file /e/pid already",
        ]
    );
    assert_eq!(
        of("{managers: {east: {tools: {port: 2}}}}"),
        [
            "fabric.managers.east: needs exactly one of opensm and ufm",
            "fabric.managers.east.tools.port: needs the adapter of the port, such as mlx5_2",
        ]
    );
    let found = of("{managers: {east: {ufm: {url: no, token_file: /no/such}}}}");
    let fields: Vec<_> = found.iter().filter_map(|fault| fault.split(':').next()).collect();
    assert_eq!(
        fields,
        ["fabric.managers.east.ufm.url", "fabric.managers.east.ufm.token_file"]
    );
    let found = of(&format!(
        "{{opensm: {{partitions: /p, log: /l, pid_file: /pid}}, managers: {{east: {east}}}}}"
    ));
    let words =
        "fabric: has managers, and opensm, ufm or tools as well: name each manager with its tools below managers";
    assert_eq!(found, [words]);
    let beside = of(&format!("{{tools: {{folder: /opt/ib}}, managers: {{east: {east}}}}}"));
    assert_eq!(beside, [words]);
    let discovered = |ufm: &str| {
        let text = format!("data_dir: /x\nfabric: {{managers: {{east: {east}, west: {{ufm: {{{ufm}}}}}}}}}\n");
        let settings = Config::parse(&text, Path::new("t")).unwrap().fabric.unwrap();
        settings.discovered().map(str::to_owned).collect::<Vec<String>>()
    };
    // Any file in place of a token.
    let records = "url: 'https://ufm', token_file: /proc/version";
    assert_eq!(discovered(records), ["east"]);
    assert_eq!(discovered(&format!("{records}, read_ports: true")), ["east", "west"]);
    assert_eq!(
        of("{first_key: \"0x0001\"}"),
        ["fabric: needs exactly one of opensm and ufm"]
    );
}

#[test]
fn agents_serve_each_other_only_where_the_settings_say_so() {
    let good = |images: &str| Config::parse(&format!("data_dir: /x\nimages: {images}\n"), Path::new("t")).unwrap();
    assert_eq!(good("{}").images.peer_port(), None);
    assert_eq!(good("{peers: false}").images.peer_port(), None);
    assert_eq!(good("{peers: true}").images.peer_port(), Some(8470));
    assert_eq!(good("{peers: true, peer_port: 9000}").images.peer_port(), Some(9000));
    let of = |images: &str| faults(&format!("data_dir: /x\nimages: {images}\n"));
    assert_eq!(
        of("{peers: true, peer_port: 0}"),
        ["images.peer_port: must be from 1 to 65535"]
    );
    assert_eq!(
        of("{peer_port: 9000}"),
        ["images.peer_port: has no effect without images.peers: true"]
    );
    assert!(of("{peers: true, peer_port: 65536}")[0].contains("65536"));
    let of = |peers: bool| {
        faults(&format!(
            "data_dir: /x\nimages: {{peers: {peers}}}\nlimits: {{image: {{per_rack: 2}}}}\n"
        ))
    };
    assert_eq!(
        of(true),
        ["limits.image.per_rack: has no effect with images.peers: true"]
    );
}
