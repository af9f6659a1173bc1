//! The file of requested clusters.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use prost_types::Timestamp;
use rackwright_api::v1::{ClusterSpec, Deployment};
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::given::is_ssh_key;
use rackwright_cli_context::{names, units};
use rackwright_placement::{Bandwidth, ClusterId, CustomerId, Request, SkuId as PlacedSku};
use rackwright_site::model::{Site, SkuId};
use rackwright_yaml::{Quote, Spanned};
use serde::Deserialize;

/// The hint that lists the possible values of a bandwidth.
const BANDWIDTHS: &str = "use non-blocking, best-effort, or a ratio of nodes to uplinks such as 2:1";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clusters: Vec<Item>,
}

/// One cluster of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: Spanned<String>,
    customer: Spanned<String>,
    sku: Spanned<String>,
    nodes: Spanned<u32>,
    #[serde(default)]
    spares: u32,
    #[serde(default)]
    bandwidth: Option<Spanned<String>>,
    // Only for a cluster that is created.
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    ssh_authorized_keys: Vec<Spanned<String>>,
    #[serde(default)]
    user_data: String,
    #[serde(default)]
    lease_end: Option<Spanned<String>>,
    #[serde(default)]
    labels: HashMap<String, String>,
}

/// A cluster requested in a site from files.
#[derive(Debug)]
pub struct PlacementRequest {
    pub name: String,
    pub customer: String,
    pub sku: String,
    pub bandwidth: String,
    pub request: Request,
}

/// A cluster requested from the control plane.
#[derive(Debug, Clone)]
pub struct ClusterRequest {
    pub name: String,
    pub spec: ClusterSpec,
    pub labels: HashMap<String, String>,
}

impl ClusterRequest {
    /// The image; empty if the file names none.
    pub fn image(&self) -> &str {
        self.spec.deployment.as_ref().map_or("", |deployment| &deployment.image)
    }
}

/// Reads the file and reports every name in it that the site does not have.
pub fn read(path: &Path, text: &str, site: &Site) -> Result<Vec<PlacementRequest>, CliError> {
    each(path, text, |place, item| item.resolve(place, site))
}

/// Reads the file for the control plane, which checks the names against its site.
pub fn cluster_requests(path: &Path, text: &str) -> Result<Vec<ClusterRequest>, CliError> {
    each(path, text, |_, item| item.ask())
}

/// Parses a bandwidth that can be requested.
pub fn bandwidth(words: &str) -> Result<String, String> {
    match Bandwidth::parse(words) {
        Some(_) => Ok(words.to_owned()),
        None => Err(BANDWIDTHS.to_owned()),
    }
}

/// The fault of a field, and the remedy.
struct Fault {
    field: &'static str,
    /// Line and column, from 1.
    at: (u64, u64),
    what: String,
    hint: String,
}

impl Fault {
    fn of<T>(field: &'static str, value: &Spanned<T>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            field,
            at: (value.referenced.line(), value.referenced.column()),
            what: what.into(),
            hint: hint.into(),
        }
    }

    fn error(self, file: &Path, place: usize) -> CliError {
        let Self {
            field,
            at: (line, column),
            what,
            hint,
        } = self;
        let file = file.display();
        CliError::usage(
            format!("{file}:{line}:{column}: clusters[{place}].{field}: {what}"),
            hint,
        )
    }
}

/// Every cluster of the file as `make` converts it, or all faults.
fn each<T>(path: &Path, text: &str, make: impl Fn(usize, Item) -> Result<T, Vec<Fault>>) -> Result<Vec<T>, CliError> {
    let shown = path.display();
    let file: File = rackwright_yaml::read(text, Quote::Lines).map_err(|error| {
        let hint =
            "example: clusters: [{name: alpha, customer: acme, sku: dgx-h100, nodes: 48}]; docs/placement.md has all fields";
        CliError::usage(format!("{shown}: {error}"), hint)
    })?;
    let (mut made, mut faults, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    for (place, item) in file.clusters.into_iter().enumerate() {
        if !names.insert(item.name.value.clone()) {
            let what = format!("there are two clusters {:?}", item.name.value);
            faults.push(Fault::of("name", &item.name, what, "").error(path, place));
        }
        match make(place, item) {
            Ok(one) => made.push(one),
            Err(found) => faults.extend(found.into_iter().map(|fault| fault.error(path, place))),
        }
    }
    CliError::gather(faults)?;
    Ok(made)
}

/// The parsed values of an item.
struct Checked {
    /// The bandwidth as text and parsed.
    words: String,
    bandwidth: Option<Bandwidth>,
    lease_end: Option<Timestamp>,
}

impl Item {
    /// Checks what is visible without a site.
    fn check(&self, faults: &mut Vec<Fault>) -> Checked {
        if self.nodes.value == 0 {
            faults.push(Fault::of("nodes", &self.nodes, "must be at least 1", ""));
        }
        let given = self.bandwidth.as_ref();
        let words = given.map_or_else(|| "non-blocking".to_owned(), |given| given.value.clone());
        let bandwidth = Bandwidth::parse(&words);
        if let (None, Some(given)) = (&bandwidth, given) {
            let what = format!("{words:?} is not a bandwidth");
            faults.push(Fault::of("bandwidth", given, what, BANDWIDTHS));
        }
        if self.name.value.is_empty() {
            faults.push(Fault::of("name", &self.name, "is missing", ""));
        } else if !names::is_id(&self.name.value) {
            let what = match self.name.value.chars().count() {
                0..=63 => format!("{:?} is not a name of a cluster", self.name.value),
                count => format!("the name has {count} characters"),
            };
            let hint = "use 1 to 63 characters of a-z, 0-9 and '-', with a letter or digit first and last";
            faults.push(Fault::of("name", &self.name, what, hint));
        }
        if let Some(wrong) = self.ssh_authorized_keys.iter().find(|key| !is_ssh_key(&key.value)) {
            let what = format!("{:?} is not an SSH public key", wrong.value);
            let hint = "a public key begins with its kind, such as ssh-ed25519";
            faults.push(Fault::of("ssh_authorized_keys", wrong, what, hint));
        }
        let mut lease_end = None;
        if let Some(given) = &self.lease_end {
            match units::parse_moment(&given.value) {
                Ok(moment) => lease_end = Some(moment),
                Err(wrong) => faults.push(Fault::of("lease_end", given, wrong, "")),
            }
        }
        Checked {
            words,
            bandwidth,
            lease_end,
        }
    }

    fn resolve(self, place: usize, site: &Site) -> Result<PlacementRequest, Vec<Fault>> {
        let mut faults = Vec::new();
        let customer = site.customer_named(&self.customer.value);
        if customer.is_none() {
            let known = site.customers.iter().map(|customer| &*customer.name);
            let what = format!("the site has no customer {:?}", self.customer.value);
            faults.push(Fault::of("customer", &self.customer, what, has("customers", known)));
        }
        let wanted = &*self.sku.value;
        let sku = site.skus.iter().position(|sku| *sku.name == *wanted).map(SkuId::of);
        if sku.is_none() {
            let known = site.skus.iter().map(|sku| &*sku.name);
            let what = format!("the site has no SKU {wanted:?}");
            faults.push(Fault::of("sku", &self.sku, what, has("SKUs", known)));
        }
        let Checked { words, bandwidth, .. } = self.check(&mut faults);
        let (Some(customer), Some(sku), Some(bandwidth), true) = (customer, sku, bandwidth, faults.is_empty()) else {
            return Err(faults);
        };
        let cluster = ClusterId(place as u64 + 1);
        let plain = Request::plain(cluster, CustomerId(customer.0), PlacedSku(sku.0), self.nodes.value);
        Ok(PlacementRequest {
            name: self.name.value,
            customer: self.customer.value,
            sku: self.sku.value,
            bandwidth: words,
            request: Request {
                spares: self.spares,
                bandwidth,
                ..plain
            },
        })
    }

    fn ask(self) -> Result<ClusterRequest, Vec<Fault>> {
        let mut faults = Vec::new();
        let checked = self.check(&mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let deployment = Deployment {
            image: self.image.as_deref().map(names::image).unwrap_or_default(),
            ssh_authorized_keys: self.ssh_authorized_keys.into_iter().map(|key| key.value).collect(),
            user_data: self.user_data,
            ..Deployment::default()
        };
        Ok(ClusterRequest {
            name: self.name.value,
            spec: ClusterSpec {
                customer: self.customer.value,
                sku: self.sku.value,
                nodes: self.nodes.value,
                spares: self.spares,
                bandwidth: checked.words,
                deployment: Some(deployment),
                lease_end: checked.lease_end,
            },
            labels: self.labels,
        })
    }
}

fn has<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(20).collect();
    if names.is_empty() {
        return format!(
            "the site has no {what}; add a section `{}` to the site file",
            what.to_lowercase()
        );
    }
    format!("the site has the {what} {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_in_words() {
        for right in ["non-blocking", "2:1", "best-effort"] {
            assert_eq!(bandwidth(right), Ok(right.to_owned()));
        }
        for wrong in ["", "1:2", "0:0", "2:0", "fast", "2", "4000000:1"] {
            assert!(bandwidth(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_becomes_the_request_that_it_describes() {
        let text = "clusters:\n- {name: a, customer: acme, sku: h100, nodes: 4}\n- name: b\n  customer: zeta\n  sku: h100\n  \
                    nodes: 8\n  spares: 1\n  bandwidth: '2:1'\n  image: debian@b3-00\n  ssh_authorized_keys: [ssh-ed25519 AAAA]\n  \
                    user_data: |\n    #cloud-config\n  lease_end: 2030-01-01T00:00:00Z\n  labels: {team: ml}\n";
        let cluster_requests = cluster_requests(Path::new("f"), text).unwrap();
        assert_eq!(
            (cluster_requests[0].image(), cluster_requests[0].spec.bandwidth.as_str()),
            ("", "non-blocking")
        );
        assert_eq!(cluster_requests[0].spec.lease_end, None);
        let spec = &cluster_requests[1].spec;
        assert_eq!((spec.nodes, spec.spares, spec.bandwidth.as_str()), (8, 1, "2:1"));
        assert_eq!(cluster_requests[1].image(), "images/debian/versions/b3-00");
        let deployment = spec.deployment.as_ref().unwrap();
        assert_eq!(deployment.user_data, "#cloud-config\n");
        assert_eq!(deployment.ssh_authorized_keys, ["ssh-ed25519 AAAA"]);
        assert_eq!(spec.lease_end.unwrap().seconds, 1_893_456_000);
        assert_eq!(cluster_requests[1].labels["team"], "ml");
    }
}
