//! Port GUIDs of replaced adapters that the control plane confirmed itself, beside the operators' site files.
//!
//! They are a file of the site's version, with a name of its own. An entry holds while the other files have the former
//! port for the adapter: a site file with another GUID takes precedence.

use std::collections::HashSet;

use rackwright_infiniband::Guid;
use rackwright_lifecycle::Timestamp;
use rackwright_site::model::Site;
use rackwright_store::SiteFile;
use serde::{Deserialize, Serialize};

/// The name of the file, in any folder.
pub const FILE: &str = "confirmed-adapters.json";

/// One port of a replaced adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmedAdapter {
    pub node: String,
    /// The adapter's name in the SKU.
    pub hca: String,
    /// The port GUID in the other files.
    pub former: Guid,
    /// The port GUID of the new adapter.
    pub port: Guid,
    /// When it was confirmed.
    pub at: Timestamp,
}

/// `None`: the file has another name, or does not parse. It then counts as a site file, which gives the finding.
fn read(file: &SiteFile) -> Option<Vec<ConfirmedAdapter>> {
    let name = file.name.rsplit('/').next()?;
    (name == FILE).then(|| serde_json::from_str(&file.text).ok()).flatten()
}

/// The site files, and the confirmed adapters of the other files.
pub(super) fn split(files: &[SiteFile]) -> (Vec<&SiteFile>, Vec<ConfirmedAdapter>) {
    let (mut rest, mut confirmed) = (Vec::new(), Vec::new());
    for file in files {
        match read(file) {
            Some(adapters) => confirmed.extend(adapters),
            None => rest.push(file),
        }
    }
    (rest, confirmed)
}

/// Gives the adapters of a site their confirmed ports. An entry without its adapter or former port has no effect, nor has
/// a port that the site has elsewhere.
pub(super) fn apply(site: &mut Site, confirmed: &[ConfirmedAdapter]) {
    if confirmed.is_empty() {
        return;
    }
    let ports = site.nodes.iter().flat_map(|node| node.port_guids.iter().flatten());
    let switches = site.switches.iter().filter_map(|switch| switch.guid.as_ref());
    let mut taken: HashSet<u64> = ports.chain(switches).copied().collect();
    for one in confirmed {
        let Some(node) = site.node_named(&one.node) else {
            continue;
        };
        let mut hcas = site.sku_of(node).hcas.iter();
        let Some(hca) = hcas.position(|hca| *hca.name == *one.hca) else {
            continue;
        };
        let Some(port) = site.nodes[node.index()].port_guids.get_mut(hca) else {
            continue;
        };
        if *port == Some(one.former.get()) && taken.insert(one.port.get()) {
            taken.remove(&one.former.get());
            *port = Some(one.port.get());
        }
    }
}

/// The files with further confirmed adapters. An adapter that was confirmed before keeps the former port of the site files.
///
/// # Errors
/// The adapters cannot be written as JSON.
pub fn with(files: &[SiteFile], further: &[ConfirmedAdapter]) -> Result<Vec<SiteFile>, serde_json::Error> {
    let (rest, mut confirmed) = split(files);
    for one in further {
        let is_same =
            |known: &&mut ConfirmedAdapter| (&known.node, &known.hca, known.port) == (&one.node, &one.hca, one.former);
        match confirmed.iter_mut().find(is_same) {
            Some(known) => (known.port, known.at) = (one.port, one.at),
            None => confirmed.push(one.clone()),
        }
    }
    // The former adapter is back.
    confirmed.retain(|one| one.port != one.former);
    let mut files: Vec<SiteFile> = rest.into_iter().cloned().collect();
    files.push(SiteFile {
        name: FILE.to_owned(),
        text: serde_json::to_string_pretty(&confirmed)?,
    });
    Ok(files)
}

/// New files of an operator with the confirmed adapters of the former version, unless the new files have a list of their
/// own.
#[must_use]
pub fn carried(former: &[SiteFile], mut files: Vec<SiteFile>) -> Vec<SiteFile> {
    let is_list = |file: &&SiteFile| read(file).is_some();
    if !files.iter().any(|file| is_list(&file)) {
        files.extend(former.iter().filter(is_list).cloned());
    }
    files
}

/// The files of an operator alone. `carried` brings the confirmed adapters back when they are applied again.
#[must_use]
pub fn without(files: Vec<SiteFile>) -> Vec<SiteFile> {
    files.into_iter().filter(|file| read(file).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use rackwright_site::generate::{ReferenceSku, Request, site_file};

    use super::*;
    use crate::hall;

    fn files() -> Vec<SiteFile> {
        let text = site_file(&Request::new(ReferenceSku::DgxH100, 4)).unwrap();
        let name = "site.yaml".to_owned();
        vec![SiteFile { name, text }]
    }

    fn port_of(files: &[SiteFile], node: usize, hca: usize) -> Guid {
        let site = hall::read(files).site.unwrap();
        Guid::new(site.nodes[node].port_guids[hca].unwrap()).unwrap()
    }

    fn confirmed(files: &[SiteFile], (node, hca): (usize, usize), port: u64) -> ConfirmedAdapter {
        let site = hall::read(files).site.unwrap();
        let id = site.node_named(&site.nodes[node].name).unwrap();
        ConfirmedAdapter {
            node: site.nodes[node].name.to_string(),
            hca: site.sku_of(id).hcas[hca].name.to_string(),
            former: port_of(files, node, hca),
            port: Guid::new(port).unwrap(),
            at: Timestamp(7),
        }
    }

    #[test]
    fn a_confirmed_adapter_has_its_new_port_until_a_site_file_has_another_one() {
        let site = files();
        let (former, other) = (port_of(&site, 1, 3), port_of(&site, 2, 3));
        let once = with(&site, &[confirmed(&site, (1, 3), 0xabc1)]).unwrap();
        assert_eq!((once.len(), port_of(&once, 1, 3).get()), (2, 0xabc1));
        assert_eq!(port_of(&once, 2, 3), other);
        // Replaced again: one entry, from the port of the site file to the newest one.
        let twice = with(&once, &[confirmed(&once, (1, 3), 0xabc2)]).unwrap();
        assert_eq!((twice.len(), port_of(&twice, 1, 3).get()), (2, 0xabc2));
        let (_, entries) = split(&twice);
        assert_eq!((entries.len(), entries[0].former), (1, former));
        // The former adapter is back.
        let back = with(&twice, &[confirmed(&twice, (1, 3), former.get())]).unwrap();
        assert_eq!(port_of(&back, 1, 3), former);
        assert!(split(&back).1.is_empty());

        // An operator's file with a port of its own takes precedence.
        let text = site[0].text.replace("0+0x100", "5+0x100");
        assert_ne!(text, site[0].text);
        let new = vec![SiteFile {
            name: "site.yaml".to_owned(),
            text,
        }];
        let applied = carried(&once, new.clone());
        assert_eq!((applied.len(), port_of(&applied, 1, 3)), (2, port_of(&new, 1, 3)));
        // The same file as before keeps the confirmation, and a list in the files ends it.
        assert_eq!(carried(&once, site.clone()), once);
        assert_eq!(without(once.clone()), site);
        let mut none = site.clone();
        none.push(SiteFile {
            name: format!("site/{FILE}"),
            text: "[]".to_owned(),
        });
        assert_eq!(port_of(&carried(&once, none), 1, 3), former);
    }

    #[test]
    fn an_entry_that_does_not_fit_has_no_effect_and_a_file_that_does_not_parse_is_a_finding() {
        let site = files();
        let former = port_of(&site, 1, 3);
        let entry = confirmed(&site, (1, 3), 0xabc1);
        let other_port = ConfirmedAdapter {
            port: port_of(&site, 2, 3),
            ..entry.clone()
        };
        let other_node = ConfirmedAdapter {
            node: "gone".to_owned(),
            ..entry.clone()
        };
        let other_hca = ConfirmedAdapter {
            hca: "gone".to_owned(),
            ..entry.clone()
        };
        let other_former = ConfirmedAdapter {
            former: Guid::new(0xdef).unwrap(),
            ..entry
        };
        for unfit in [other_port, other_node, other_hca, other_former] {
            let files = with(&site, std::slice::from_ref(&unfit)).unwrap();
            assert_eq!(port_of(&files, 1, 3), former, "{unfit:?}");
        }
        let mut files = site;
        files.push(SiteFile {
            name: FILE.to_owned(),
            text: "[{\"node\": 1}]".to_owned(),
        });
        let checked = hall::read(&files);
        assert!(checked.site.is_none() && checked.findings.errors > 0);
    }
}
