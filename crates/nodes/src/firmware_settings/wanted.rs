//! The wish for each node's settings, by its SKU in the present site.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rackwright_ground::clock;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_lifecycle::{NodeId, Timestamp};
use rackwright_redfish::pem_fingerprint;
use rackwright_site::model::{Site, WantedSettings};
use rackwright_store::{NodeRecord, StoreError};

/// How long the site's version is cached, in microseconds, so that thousands of steps a second do not read it each.
const CACHE_US: i64 = 500_000;

/// The wishes of the site: by the node's own SKU, else by the SKU that the site gives the node. Nodes of a SKU share one
/// wish.
#[derive(Debug, Default)]
pub struct Wanted {
    /// By the name of a SKU of the site. `None`: no wish for its nodes.
    skus: HashMap<String, Option<Arc<WantedSettings>>>,
    /// By the name of a node of the site; nodes without a wish are missing.
    nodes: HashMap<NodeId, Arc<WantedSettings>>,
}

impl Wanted {
    /// Whether no node has a wish.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.skus.values().all(Option::is_none)
    }

    /// The wish for a node that was enrolled with this SKU.
    #[must_use]
    pub fn of(&self, node: &NodeId, sku: &str) -> Option<&Arc<WantedSettings>> {
        match self.skus.get(sku) {
            Some(wanted) => wanted.as_ref(),
            None => self.nodes.get(node),
        }
    }

    /// Wishes for these nodes, regardless of their SKU.
    #[must_use]
    pub fn of_nodes(nodes: HashMap<NodeId, Arc<WantedSettings>>) -> Self {
        Self {
            skus: HashMap::new(),
            nodes,
        }
    }
}

/// The wishes from the last reading of the site.
#[derive(Debug, Default)]
pub struct WantedCache {
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug, Clone)]
struct Kept {
    /// When the site was last asked. `None`: these wishes replace the site's, and the site is not asked.
    asked_at: Option<Timestamp>,
    /// The version of the site; 0: there is no site.
    version: i64,
    wanted: Arc<Wanted>,
}

impl FeatureState for WantedCache {
    fn new(_: &Config) -> Self {
        Self::default()
    }
}

impl WantedCache {
    /// The wishes for all nodes.
    ///
    /// # Errors
    /// The database failed. `Corrupt`: the stored site does not parse any more.
    pub async fn all(&self, core: &Core) -> Result<Arc<Wanted>, StoreError> {
        let now = clock::now();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(kept) = &kept
            && kept
                .asked_at
                .is_none_or(|asked_at| (0..CACHE_US).contains(&now.since(asked_at)))
        {
            return Ok(kept.wanted.clone());
        }
        let (version, site) = match core.sites.applied(&core.store).await? {
            Some((version, site)) => (version, Some(site)),
            None => (0, None),
        };
        let wanted = match (&kept, &site) {
            (Some(kept), _) if kept.version == version => kept.wanted.clone(),
            (_, Some(site)) => Arc::new(of_site(site)),
            (_, None) => Arc::default(),
        };
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Kept {
            asked_at: Some(now),
            version,
            wanted: wanted.clone(),
        });
        Ok(wanted)
    }

    /// Reads the site again at the next request, because a new one was applied here.
    pub fn forget(&self) {
        if let Some(kept) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            kept.asked_at = kept.asked_at.map(|_| Timestamp::default());
        }
    }

    /// Replaces the wishes of the site from now on. Only tests do.
    pub fn replace(&self, wanted: Arc<Wanted>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Kept {
            asked_at: None,
            version: 0,
            wanted,
        });
    }

    /// The wish for one node.
    ///
    /// # Errors
    /// Those of [`Self::all`].
    pub async fn of(&self, core: &Core, record: &NodeRecord) -> Result<Option<Arc<WantedSettings>>, StoreError> {
        Ok(self.all(core).await?.of(&record.id, &record.spec.sku).cloned())
    }
}

fn of_site(site: &Site) -> Wanted {
    let sha256_of = |pem: &str| pem_fingerprint(pem).map(|print| bare(&print.to_string()));
    let by_sku: Vec<Option<Arc<WantedSettings>>> = site
        .skus
        .iter()
        .map(|sku| {
            let wanted = (!sku.settings.is_empty()).then(|| sku.settings.clone().with_fingerprints(sha256_of));
            wanted.map(Arc::new)
        })
        .collect();
    let nodes = site.nodes.iter().filter_map(|node| {
        let wanted = by_sku.get(node.sku.index())?.clone()?;
        Some((NodeId::stored(&*node.name), wanted))
    });
    Wanted {
        nodes: nodes.collect(),
        skus: site
            .skus
            .iter()
            .map(|sku| sku.name.to_string())
            .zip(by_sku.clone())
            .collect(),
    }
}

/// A fingerprint's digits only.
pub(super) fn bare(fingerprint: &str) -> String {
    fingerprint.trim_start_matches("sha256:").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::State;

    use super::*;

    #[test]
    fn a_nodes_own_sku_precedes_that_of_the_site() {
        let with_secure_boot = |on| {
            Arc::new(WantedSettings {
                secure_boot: Some(on),
                ..WantedSettings::default()
            })
        };
        let wanted = Wanted {
            skus: [
                ("own".to_owned(), Some(with_secure_boot(true))),
                ("bare".to_owned(), None),
            ]
            .into(),
            nodes: [("n1".into(), with_secure_boot(false))].into(),
        };
        let secure_boot = |node: &'static str, sku| wanted.of(&node.into(), sku).and_then(|one| one.secure_boot);
        assert_eq!(secure_boot("n1", "own"), Some(true));
        assert_eq!(secure_boot("n2", "own"), Some(true));
        assert_eq!(secure_boot("n1", "bare"), None);
        assert_eq!(secure_boot("n1", "unknown"), Some(false));
        assert_eq!(secure_boot("n2", "unknown"), None);
        assert!(!wanted.is_empty() && Wanted::default().is_empty());
    }

    #[tokio::test]
    async fn an_unreadable_site_is_a_named_error_and_not_a_site_without_wishes() {
        let core = testing::core().await;
        let site = "site: {name: lab}\nrooms: [{name: hall}]\nracks: [{name: r1, room: hall}]\n\
                    skus: [{name: k, power: {max_watts: 1 kW}, psus: {count: 1, watts: 1 kW, needed: 1}, height_units: 1, \
                    secure_boot: {state: enabled}}]\nnodes: [{name: n1, sku: k, rack: r1, unit: 1}]\n";
        testing::put_site(&core, site).await;
        let record = testing::node("n1", State::Inspecting, None);
        let cache = core.feature::<WantedCache>();
        let wanted = cache.of(&core, &record).await.unwrap().unwrap();
        assert_eq!(wanted.secure_boot, Some(true));

        testing::damage_site(&core).await;
        cache.forget();
        let error = cache.of(&core, &record).await.unwrap_err();
        assert_eq!(error.to_string(), "document \"site\" cannot be read back");
    }
}
