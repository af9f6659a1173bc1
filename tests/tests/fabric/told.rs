//! What operators, customers, the audit, the metrics and the usage have about breaches of isolation.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rackwright_tests::site::texts;
use serde_json::Value;

use super::{Attacked, CLUSTERS, METHOD, text, time};

/// A breach in the usage: kind, customer, cluster, and the seconds since 1970 of its start and its end.
type InUsage = (String, String, String, u64, u64);

impl Attacked {
    /// The customer of a concerned cluster has an event at the start and one at the end of each breach, about no other
    /// cluster. Other customers have none.
    pub(super) fn customer(&self, attack: &str, cluster: &str, is_concerned: bool) {
        let mut events = self.events_of(Some(cluster));
        events.retain(|event| text(event, "kind").contains("isolation"));
        let target = format!("clusters/{cluster}");
        assert!(
            events.iter().all(|event| text(event, "target") == target),
            "{attack}: {events:?}"
        );
        let times = |kind: &str| {
            let of = events.iter().filter(|event| text(event, "kind") == kind);
            of.map(|event| time(&event["time"])).collect::<Vec<_>>()
        };
        let (begun, over) = (times("cluster.isolation-breach"), times("cluster.isolation-restored"));
        assert_eq!(!begun.is_empty(), is_concerned, "{attack}: {cluster}: {events:?}");
        assert_eq!(begun.len(), over.len(), "{attack}: {cluster}: {events:?}");
        let breaches = self.new_breaches();
        let is_time = |at: &Option<SystemTime>, field: &str| breaches.iter().any(|breach| time(&breach[field]) == *at);
        assert!(
            begun.iter().all(|at| is_time(at, "since")) && over.iter().all(|at| is_time(at, "end_time")),
            "{attack}: {events:?}: {breaches:?}"
        );
    }

    /// The audit has the start and the end of each breach, and the metrics have their number and none that is open.
    pub(super) async fn recorded(&self, attack: &str) {
        let all = self.breaches().len();
        let records = self.site.json(["audit", "list", "--method", METHOD, "--limit", "1000"]);
        let records = records.as_array().expect("records").len();
        assert_eq!(records, 2 * all, "{attack}: {METHOD}");
        let begun = format!("rackwright_fabric_breaches_begun_total {all}");
        let lines = [begun.as_str(), "rackwright_fabric_breaches_open 0"];
        let is_counted = |hall: &Self| {
            let metrics = hall.metrics();
            lines.iter().all(|line| metrics.lines().any(|one| one == *line))
        };
        self.wait(&format!("{attack} in the metrics: {lines:?}"), is_counted)
            .await;
    }

    /// The usage has every breach so far, to the second, with its times at each cluster that it concerned: all of them for
    /// operators, and for the administrators of a customer those of the own cluster.
    pub(super) fn usage(&self) {
        let mut expected = Vec::new();
        for breach in self.breaches() {
            let second = |field: &str| {
                let at = time(&breach[field]).expect("a time");
                at.duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
            };
            let kind = text(&breach, "kind");
            let mut add = |customer: &str, cluster: &str| {
                let names = (kind.to_owned(), customer.to_owned(), cluster.to_owned());
                expected.push((names.0, names.1, names.2, second("since"), second("end_time")));
            };
            let concerned = breach["clusters"].as_array().cloned().unwrap_or_default();
            for (cluster, customer) in CLUSTERS {
                let name = format!("clusters/{cluster}");
                if concerned.contains(&Value::from(name.as_str())) {
                    add(customer, &name);
                }
            }
            // Ports of no cluster are open too, and all of them reach each other.
            if kind == "open-default" {
                add("", "");
            }
        }
        expected.sort();
        assert_eq!(self.usage_of(None), expected, "{:?}", self.breaches());
        for (cluster, customer) in CLUSTERS {
            let mut own = expected.clone();
            own.retain(|breach| breach.1 == customer);
            assert!(!own.is_empty(), "no breach concerned {cluster}");
            assert_eq!(self.usage_of(Some(&self.admins[cluster])), own, "{customer}");
        }
    }

    /// The breaches in the usage, sorted, for operators or for the owner of a credential.
    fn usage_of(&self, credential: Option<&Path>) -> Vec<InUsage> {
        let mut command = self.site.command();
        if let Some(home) = credential {
            command.env("RACKWRIGHT_CONFIG", home);
        }
        let of = ["-o", "json", "usage", "breaches", "--from", "2000-01-01"];
        let (out, err) = texts(&command.args(of).output().expect("the CLI can be started"));
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
        let row = |breach: &Value| {
            let second = |field: &str| {
                let at = time(&breach[field]).unwrap_or_else(|| panic!("no {field}: {breach}"));
                at.duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
            };
            let name = |field: &str| text(breach, field).to_owned();
            let (since, end) = (second("since"), second("end_time"));
            (name("kind"), name("customer"), name("cluster"), since, end)
        };
        let breaches = answer["breaches"].as_array().cloned().unwrap_or_default();
        let mut rows: Vec<InUsage> = breaches.iter().map(row).collect();
        rows.sort();
        rows
    }

    /// The events of a kind after the last attack, for operators.
    pub(super) fn events_of_kind(&self, kind: &str) -> Vec<Value> {
        let mut events = self.events_of(None);
        events.retain(|event| text(event, "kind") == kind);
        events
    }

    /// The events after the last attack for operators, or for the customer of a cluster.
    pub(super) fn events_of(&self, customer: Option<&str>) -> Vec<Value> {
        let after = self.position.to_string();
        let mut command = self.site.command();
        if let Some(cluster) = customer {
            command.env("RACKWRIGHT_CONFIG", &self.users[cluster]);
        }
        let output = command.args(["-o", "json", "events", "--after", &after]).output();
        let output = output.expect("the CLI can be started");
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{out}{err}");
        let events = out
            .lines()
            .map(|line| serde_json::from_str(line).expect("an event in JSON"));
        events.collect()
    }

    /// The newest event of a kind about a breach of a kind, as operators read the event.
    pub(super) fn report(&self, event: &str, breach: &str) -> String {
        let all = self.site.json(["fabric", "faults"]);
        let output = self
            .site
            .command()
            .args(["-o", "json", "events", "--target", "fabric"])
            .output();
        let (out, _) = texts(&output.expect("the CLI can be started"));
        let events = out
            .lines()
            .rev()
            .map(|line| serde_json::from_str::<Value>(line).expect("an event in JSON"));
        let mut of = events.filter(|one| text(one, "kind") == event && text(&one["attributes"], "breach") == breach);
        let found = of
            .next()
            .unwrap_or_else(|| panic!("{event} of {breach} is not reported: {all}"));
        text(&found, "message").to_owned()
    }

    fn metrics(&self) -> String {
        let credentials = self.site.dir().join("cli");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "--fail", "--cacert"])
            .arg(credentials.join("default.ca.pem"));
        for flag in ["--cert", "--key"] {
            curl.arg(flag).arg(credentials.join("default.pem"));
        }
        let output = curl
            .arg(format!("https://127.0.0.1:{}/metrics", self.ports.store))
            .output();
        let output = output.expect("curl runs");
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{err}");
        out
    }
}
