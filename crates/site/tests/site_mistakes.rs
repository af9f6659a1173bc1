//! Mistakes in site files: each is reported once, at its place, together with all others.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rackwright_site::file::{Limits, Source, check, check_within};
use rackwright_site::finding::MAX_FINDINGS;
use rackwright_site::generate::{ReferenceSku, Request, site_file};

const FAULTY: &str = include_str!("site_mistakes/site.yaml");
const EXPECTED: &str = include_str!("site_mistakes/expected.txt");

fn found(text: &str) -> Vec<String> {
    let findings = check(&[Source {
        name: "site.yaml",
        text,
    }])
    .findings;
    findings
        .list
        .iter()
        .map(|f| format!("{}:{} {}", f.line, f.column, f.path))
        .collect()
}

/// The texts of all findings, for tests of one mistake.
fn words(text: &str) -> Vec<String> {
    let findings = check(&[Source {
        name: "site.yaml",
        text,
    }])
    .findings;
    findings
        .list
        .iter()
        .map(|f| format!("{}: {} | {}", f.line, f.what, f.fix))
        .collect()
}

#[test]
fn thirty_mistakes_are_thirty_findings() {
    let expected: Vec<&str> = EXPECTED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(expected.len(), 30);
    let found = found(FAULTY);
    assert_eq!(found, expected, "\n{}", words(FAULTY).join("\n"));
    assert!(
        check(&[Source {
            name: "site.yaml",
            text: FAULTY
        }])
        .site
        .is_none()
    );
}

const GOOD: &str = "site: {name: s}
rooms: [{name: h}]
racks: [{name: r, room: h}]
power:
- {name: u, kind: utility, feed: A, watts: 20 kW}
- {name: p, kind: rack-pdu, parent: u, rack: r, watts: 10 kW, outlets: [{name: '[1-4]'}]}
skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1}]
nodes: [{name: n, sku: k, rack: r, unit: 1, psus: [p/1]}]
";

/// The text to replace in `GOOD`, its replacement, and the resulting finding.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "psus: [p/1]",
        "psus: [p/1], ethernet: {eth0: leaf-1}",
        "8: `leaf-1` is not a port of a switch | write SWITCH/PORT, such as eth-leaf-1/swp7",
    ),
    (
        "psus: [p/1]",
        "psus: [p/1], ethernet: {eth0: l/1, eth1: l/1}",
        "8: port l/1 is given twice | a port takes one cable; for several nodes use a pattern",
    ),
    (
        "racks:",
        "rakcs:",
        "3: the section `rakcs` is unknown | did you mean `racks`?",
    ),
    (
        "room: h}",
        "room: H}",
        "3: there is no room named `H` | did you mean `h`?",
    ),
    (
        "site: {name: s}",
        "",
        "2: `site` is missing | add `site: {name: ...}` to one of the documents",
    ),
    (
        "watts: 20 kW",
        "watts: 20 kV",
        "5: `20 kV` has the wrong unit | write a number, in W, kW or MW",
    ),
    (
        "watts: 20 kW",
        "watts: .nan",
        "5: `.nan` is not a number | write a number, in W, kW or MW",
    ),
    (
        "watts: 20 kW",
        "watts: 1e999",
        "5: `1e999` is not a number | write a number, in W, kW or MW",
    ),
    ("watts: 20 kW", "watts: [1]", "5: this must be a single value | "),
    (
        "watts: 20 kW",
        "watts: kw",
        "5: `kw` is not a number | write a number, in W, kW or MW",
    ),
    (
        "watts: 20 kW",
        "watts: 20 kw",
        "5: `20 kw` is read as 20 kW | write `20 kW`",
    ),
    (
        "watts: 20 kW",
        "watts: 0.5",
        "5: `0.5` is out of range | write a number from 1 W to 10000000000 W",
    ),
    (
        "feed: A",
        "feed: AB",
        "5: `AB` is not a feed letter | \
         write one capital letter such as A or B; a domain that feeds several letters has none",
    ),
    ("feed: A", "feed: a", "5: `a` is not a capital letter | write `A`"),
    (
        "height_units: 1",
        "height_units: 1, price_per_second: 0.0125 USX",
        "7: ISO 4217 has no currency USX | write the code of the currency, as `0.0125 USD`",
    ),
    (
        "name: h}",
        "name: a/b}",
        "2: the name `a/b` contains '/' | use 1 to 63 letters, digits and `-_.:`, with a letter or digit first",
    ),
    (
        "height_units: 1",
        "height_units: 1, hcas: [mlx5/0]",
        "7: the name `mlx5/0` contains '/' | use 1 to 63 letters, digits and `-_.:`, with a letter or digit first",
    ),
    (
        "psus: {count: 1, watts: 1 kW, needed: 1}",
        "psus: 0",
        "7: this must be a mapping | write `psus: {count: 6, watts: 3300, needed: 4}`",
    ),
    (
        "psus: [p/1]",
        "psus: 0",
        "8: this must be a list of at most 64 outlets, one for each PSU | write `- PDU/OUTLET` lines",
    ),
    (
        "kind: rack-pdu",
        "kind: rack-pd",
        "6: `rack-pd` is not a known value | did you mean `rack-pdu`?",
    ),
    (
        "feed: A, ",
        "",
        "5: the path to the outlets of p has no feed letter | \
         add `feed: A` (or B, C, ...) at the top of the domains that fail together",
    ),
    (
        "psus: [p/1]",
        "psus: [p/5]",
        "8: p has no outlet 5 | there are 4 outlets, from 1 to 4",
    ),
    (
        "psus: [p/1]",
        "psus: [q/1]",
        "8: there is no power domain named `q` | describe it, or name a power domain that exists",
    ),
    (
        "psus: [p/1]",
        "psus: [u/1]",
        "8: u is a utility and has no outlets | connect the PSU to a rack-pdu or a power-shelf",
    ),
    (", psus: [p/1]", "", "8: node n has no PSU plugged in | add `psus`"),
    (
        "psus: [p/1]",
        "psus: ['{rak}/1']",
        "8: there is no placeholder `{rak}` | did you mean `{rack}`? the placeholders are `{name}` and `{rack}`",
    ),
    (
        "psus: [p/1]",
        "psus: [p/1], bmc: 'https://bmc-{nmae}'",
        "8: there is no placeholder `{nmae}` | did you mean `{name}`? the placeholders are `{name}` and `{rack}`",
    ),
    (
        "parent: u,",
        "parent: '{unit}',",
        "6: there is no placeholder `{unit}` | the placeholders are `{name}` and `{rack}`",
    ),
    (
        "feed: A, watts",
        "feed: A, bmc: 'https://{rack}', watts",
        "5: `{rack}` stands for the rack, but this item has none | add `rack:`, or write the name of the rack",
    ),
    (
        "rack: r, unit",
        "rack: 'r-{name}', unit",
        "8: there is no rack named `r-{name}` | \
         `{name}` and `{rack}` stand for names only in `parent`, `psus`, `bmc` and `ethernet`",
    ),
    (
        "unit: 1,",
        "unit: 0,",
        "8: `0` is out of range | write a whole number from 1 to 120",
    ),
    (
        "name: n,",
        "name: 'n[1-2]',",
        "8: unit 1 of rack r is taken already | a k needs 1 units, starting at `unit`",
    ),
    (
        "name: n,",
        "name: 'n[2-1]',",
        "8: the range 2-1 must go up | patterns look like gpu-[001-032] or rack-[1-4]*8",
    ),
    (
        "name: n,",
        "name: 'n[1-99999999]',",
        "8: `n[1-99999999]` gives more than 1048576 names | divide this pattern into several, or correct its numbers",
    ),
    (
        "rack: r, unit",
        "rack: r, rack: r, unit",
        "8: `rack` is given twice | remove one of them",
    ),
    (
        "sku: k,",
        "sku: &x k,",
        "8: anchors are not supported | write the value out",
    ),
    (
        "parent: u,",
        "parent: p,",
        "6: the power tree has a cycle: p fed by p | give one of them another parent",
    ),
    ("parent: u, ", "", "6: a rack-pdu needs a parent | add `parent:`"),
    (
        "parent: u, ",
        "parnet: u, ",
        "6: the field `parnet` is unknown | did you mean `parent`?",
    ),
];

#[test]
fn one_mistake_is_one_finding_with_its_remedy() {
    assert_eq!(words(GOOD), [""; 0]);
    for (from, to, expected) in MISTAKES {
        assert!(GOOD.contains(*from), "{from}");
        let text = GOOD.replacen(*from, to, 1);
        let found = words(&text);
        assert!(found.iter().any(|one| one == expected), "{from} -> {to}: {found:#?}");
        // Two nodes in one place also share an outlet.
        let most = if *from == "name: n," && *to == "name: 'n[1-2]'," {
            2
        } else {
            1
        };
        assert!(found.len() <= most, "{from} -> {to}: {found:#?}");
    }
}

#[test]
fn an_unclosed_quote_is_told_where_it_was_opened() {
    let fix = "close the quote; the rest of this file was not checked";
    for (from, to, expected) in [
        (
            "name: n,",
            "name: \"n,",
            "8: this is not YAML: the quote that is opened here is not closed",
        ),
        (
            "racks: [{name: r,",
            "racks: [{name: 'r,",
            "3: this is not YAML: the quote that is opened here goes on to line 6, column 80",
        ),
    ] {
        let found = words(&GOOD.replacen(from, to, 1));
        assert_eq!(found, [format!("{expected} | {fix}")], "{to}");
    }
}

/// A site of 32 nodes with outlets, HCAs and cables, all of one SKU.
fn generated() -> String {
    site_file(&Request::new(ReferenceSku::DgxH100, 32)).unwrap()
}

#[test]
fn a_wrong_value_that_many_items_use_is_one_finding() {
    for (from, to, what) in [
        ("psus: {count: 6", "psus: {count: 0", "`0` is out of range"),
        (
            "psus: {count: 6, watts: 3300, needed: 4}",
            "psus: 0",
            "this must be a mapping",
        ),
        ("hcas: [mlx5_0", "hcas: [mlx5/0", "the name `mlx5/0` contains '/'"),
        ("kind: rack-pdu", "kind: rack-pud", "`rack-pud` is not a known value"),
        ("feed: A", "feed: AB", "`AB` is not a feed letter"),
    ] {
        let text = generated();
        assert!(text.contains(from), "{from}");
        let findings = check(&[Source {
            name: "site.yaml",
            text: &text.replacen(from, to, 1),
        }])
        .findings;
        let whats: Vec<&str> = findings.list.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(whats, [what], "{from} -> {to}");
    }
}

#[test]
fn nodes_without_psus_are_counted_and_named_as_written() {
    let nodes = "name: 'gpu-[0001-1000]', sku: k, rack: r}";
    let text = GOOD.replacen("name: n, sku: k, rack: r, unit: 1, psus: [p/1]}", nodes, 1);
    assert_ne!(text, GOOD);
    assert_eq!(
        words(&text),
        ["8: 1,000 nodes (gpu-[0001-1000]) have no PSU plugged in | add `psus`"]
    );
}

#[test]
fn a_wrong_value_has_no_consequences_among_the_findings() {
    let liquid = site_file(&Request::new(ReferenceSku::Gb200Nvl72, 36)).unwrap();
    for (from, to, what) in [
        ("liquid: true", "liquid: maybe", "`maybe` is neither true nor false"),
        ("kind: cdu", "kind: cduu", "`cduu` is not a known value"),
    ] {
        assert!(liquid.contains(from), "{from}");
        let findings = check(&[Source {
            name: "site.yaml",
            text: &liquid.replacen(from, to, 1),
        }])
        .findings;
        let whats: Vec<&str> = findings.list.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(whats, [what], "{from} -> {to}");
    }
    let text = GOOD.replacen("height_units: 1", "height_units: 1, hcas: [m], hca_speed: HDR", 1);
    assert_eq!(
        words(&format!(
            "{text}switches: [{{name: l, role: leaf, ports: 4, speed: HDX}}]\ncables: [{{label: c, a: n/m, b: l/1}}]\n"
        )),
        ["9: `HDX` is not a known value | did you mean `HDR`?"]
    );
    let domains = "power:\n\
                   - {name: m, kind: panel, parent: u, volts: 415, amps: 63, phases: three}\n\
                   - {name: b, kind: circuit, parent: m, volts: 240, amps: 16, phases: 1, phase: L1}\n";
    assert_eq!(
        words(&GOOD.replacen("power:\n", domains, 1)),
        ["5: `three` is not a number of phases | write 1 or 3"]
    );
    assert_eq!(
        words(&format!(
            "{GOOD}customers: [{{name: a, dedicated_circuits: yes, circuits: p}}]\n"
        )),
        ["9: `yes` is neither true nor false | write true or false"]
    );
}

#[test]
fn a_long_name_is_shown_by_its_beginning() {
    let long = "x".repeat(300);
    let start = "x".repeat(40);
    let fix = "use 1 to 63 letters, digits and `-_.:`, with a letter or digit first";
    assert_eq!(
        words(&GOOD.replacen("name: n,", &format!("name: {long},"), 1)),
        [format!("8: the name `{start}...` has 300 characters | {fix}")]
    );
    assert_eq!(
        words(&GOOD.replacen("room: h}", &format!("room: {long}}}"), 1)),
        [format!(
            "3: there is no room named `{start}...` | describe it, or name a room that exists"
        )]
    );
}

#[test]
fn an_unknown_end_of_a_cable_suggests_the_nearest_node_or_switch() {
    let found = |device: &str| {
        let site = GOOD.replacen("name: n,", "name: switch-10,", 1);
        words(&format!(
            "{site}switches: [{{name: switch-8, role: leaf, ports: 4}}]\n\
             cables: [{{label: c, a: {device}/1, b: switch-8/1}}]\n"
        ))
    };
    assert_eq!(
        found("switch-9"),
        ["10: there is no node or switch named `switch-9` | did you mean `switch-8`?"]
    );
    assert_eq!(
        found("elsewhere"),
        ["10: there is no node or switch named `elsewhere` | describe it, or name a node or a switch that exists"]
    );
}

#[test]
fn several_files_and_documents_are_one_site() {
    let (first, rest) = GOOD.split_at(GOOD.find("racks:").unwrap());
    let (second, third) = rest.split_at(rest.find("skus:").unwrap());
    let second = format!("# nothing\n---\n{second}---\n{third}");
    let sources = [
        Source {
            name: "b.yaml",
            text: &second,
        },
        Source {
            name: "a.yaml",
            text: first,
        },
    ];
    let checked = check(&sources);
    assert!(checked.site.is_some(), "{:?}", checked.findings);
    let broken = first.replace("name: h", "name: g");
    let checked = check(&[
        sources[0],
        Source {
            name: "a.yaml",
            text: &broken,
        },
    ]);
    assert_eq!(checked.findings.list.len(), 1);
    assert_eq!(
        (&*checked.findings.list[0].file, checked.findings.list[0].line),
        ("b.yaml", 3)
    );
}

#[test]
fn a_certificate_above_the_limit_is_a_finding_about_its_size() {
    let found = |pem: &str| {
        let keys = format!("height_units: 1, secure_boot: {{keys: [{{database: db, pem: \"{pem}\"}}]}}");
        words(&GOOD.replacen("height_units: 1", &keys, 1))
    };
    let (head, tail) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    let of = |body: usize| format!("{head}\\n{}\\n{tail}", "A".repeat(body));
    // The head, the tail and two line ends.
    let frame = head.len() + tail.len() + 2;
    assert_eq!(found(&of(16_384 - frame)), [""; 0], "at the limit");
    assert_eq!(
        found(&of(16_385 - frame)),
        ["7: the certificate has 16385 bytes; the limit is 16384 bytes | give one certificate without its chain"]
    );
    let fix = format!("write `pem: |`, then the lines from {head} on");
    assert_eq!(
        found("AAAA"),
        [format!("7: this is not a PEM certificate | {fix}")],
        "a text without head and tail"
    );
}

#[test]
fn what_cannot_be_read_to_its_end_gives_no_finding_about_what_is_missing() {
    let cut = GOOD.replace("skus: [", "skus: [[}");
    let found = words(&cut);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("this is not YAML"), "{found:#?}");
}

#[test]
fn a_file_that_is_not_utf_8_is_one_finding() {
    let (first, second) = GOOD.split_at(GOOD.find("skus:").unwrap());
    let first = format!("{first}# caf\u{fffd}\n");
    let sources = [("a.yaml", first.as_str()), ("b.yaml", second)].map(|(name, text)| Source { name, text });
    let findings = check(&sources).findings;
    let found: Vec<String> = findings.list.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["a.yaml:7:6: error: : this is not UTF-8 text"]);
}

#[test]
fn hostile_texts_are_bounded() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n";
    assert!(check(&[Source { name: "x", text: bomb }]).site.is_none());
    let deep = format!("racks: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(check(&[Source { name: "x", text: &deep }]).site.is_none());
    let many = format!("site: {{name: s}}\nracks:\n{}", "- {name: a b}\n".repeat(20_000));
    let findings = check(&[Source { name: "x", text: &many }]).findings;
    assert_eq!(findings.list.len(), MAX_FINDINGS);
    assert!(findings.left_out() > 10_000);
    let pattern = format!("racks:\n- {{name: 'r{}', room: h}}\n", "[1-9]".repeat(50));
    assert!(
        check(&[Source {
            name: "x",
            text: &pattern
        }])
        .site
        .is_none()
    );
}

fn mutations() -> impl Strategy<Value = Vec<(usize, usize, String)>> {
    let insert = prop_oneof![
        "[\\[\\]{}:,\\-'\"&*!|>#%@`~\n\t 0-9a-z.é]{0,6}",
        Just("1e308".to_owned()),
        Just("-1".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just("[1-1048577]".to_owned()),
        Just("*99999".to_owned()),
        Just("\u{0}".to_owned()),
    ];
    proptest::collection::vec((any::<prop::sample::Index>(), 0..12_usize, insert), 1..6).prop_map(|all| {
        all.into_iter()
            .map(|(at, cut, text)| (at.index(1 << 20), cut, text))
            .collect()
    })
}

fn mutate(text: &str, mutations: &[(usize, usize, String)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, cut, insert) in mutations {
        let at = at % (chars.len() + 1);
        let end = (at + cut).min(chars.len());
        chars.splice(at..end, insert.chars());
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Any file gives a site or at least one error, with places inside the file and without a panic.
    #[test]
    fn mutated_texts_are_read_or_refused(
        which in 0..3_usize,
        mutations in mutations(),
    ) {
        let generated = site_file(&Request::new(ReferenceSku::Gb200Nvl72, 40)).unwrap();
        let text = mutate([FAULTY, GOOD, &generated][which], &mutations);
        let checked = check(&[Source { name: "x", text: &text }]);
        prop_assert_eq!(checked.site.is_some(), checked.findings.errors == 0);
        let lines = text.lines().count() as u32 + 1;
        for finding in &checked.findings.list {
            prop_assert!(finding.line >= 1 && finding.line <= lines && finding.column >= 1, "{finding}");
        }
        if let Some(site) = checked.site {
            prop_assert!(!site.summary().to_string().is_empty());
        }
    }
}

#[test]
fn patterns_of_a_site_stand_for_a_bounded_number_of_names_together() {
    let text =
        format!("{GOOD}\nswitches: [{{name: 'a[1-400]'}}, {{name: 'b[1-400]'}}, {{name: 'c[1-400]'}}, {{name: d}}]");
    let source = Source {
        name: "site.yaml",
        text: &text,
    };
    let findings = check_within(&[source], Limits { names: 1000 }).findings;
    let too_many: Vec<&str> = (findings.list.iter().map(|f| f.what.as_str()))
        .filter(|what| what.contains("names"))
        .collect();
    assert_eq!(
        too_many,
        ["with `c[1-400]`, the patterns of this site give more than 1000 names"]
    );
}

#[test]
fn a_list_of_too_many_names_is_a_finding() {
    let found = words("racks: [{name: r, room: ['h[1-1000000]', 'i[1-1000000]']}]");
    assert!(
        found.iter().any(|line| line.contains("this list gives more than")),
        "{found:?}"
    );
}
