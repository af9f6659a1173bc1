//! Finds the system, the manager and the profile of a BMC.

use std::sync::Arc;

use rackwright_pattern::fits_any_case;
use rackwright_redfish_wire::address;
use rackwright_redfish_wire::error::RedfishError;

use super::BmcClient;
use crate::quirks::{Evidence, Profile, QuirkSet};
use crate::resource::Resource;
use crate::views::System;

impl BmcClient {
    pub(super) async fn find_system(&self) -> Result<String, RedfishError> {
        let root = self.service_root().await?;
        let Some(systems) = root.systems() else {
            return Err(RedfishError::MissingProperty {
                bmc: self.address(),
                path: root.path().to_owned(),
                property: "Systems",
                consequence: "there is no system to manage",
            });
        };
        let mut members = self.member_links(&systems).await?;
        let id_of = |link: &String| address::last_segment(link).to_owned();
        let all: Vec<String> = members.iter().map(id_of).collect();
        let _ = self.inner.system_ids.set(all.clone());
        let Some(wanted) = &self.inner.wanted_system else {
            if members.len() > 1 {
                let evidence = Evidence::gather(root.resource(), None, None).with_systems(&all);
                let side = self.quirks()?.profile_for(&evidence).side_systems;
                members.retain(|link| !side.iter().any(|one| fits_any_case(one, address::last_segment(link))));
            }
            return match members.len() {
                1 => Ok(members.remove(0)),
                0 => Err(RedfishError::NoSuchSystem {
                    bmc: self.address(),
                    wanted: String::new(),
                    members: all,
                }),
                _ => Err(RedfishError::SeveralSystems {
                    bmc: self.address(),
                    members: all,
                }),
            };
        };
        let is_wanted =
            |link: &&String| address::same_resource(link, wanted) || address::last_segment(link) == wanted.as_str();
        members
            .iter()
            .find(is_wanted)
            .cloned()
            .ok_or_else(|| RedfishError::NoSuchSystem {
                bmc: self.address(),
                wanted: wanted.clone(),
                members: all,
            })
    }

    pub(crate) async fn manager_links(&self, system: &System) -> Result<Vec<String>, RedfishError> {
        let named = system.managed_by();
        if !named.is_empty() {
            return Ok(named);
        }
        // The only manager is unambiguous.
        match self.service_root().await?.managers() {
            Some(collection) => {
                let members = self.member_links(&collection).await?;
                Ok(if members.len() == 1 { members } else { Vec::new() })
            }
            None => Ok(Vec::new()),
        }
    }

    /// The system's manager: its link if there is one, and its resource unless the resource is unreadable.
    pub(crate) async fn manager_of(&self, system: &System) -> Result<(Option<String>, Option<Resource>), RedfishError> {
        let Some(link) = self.manager_links(system).await?.into_iter().next() else {
            return Ok((None, None));
        };
        match self.get(&link).await {
            Ok(manager) => Ok((Some(link), Some(manager))),
            Err(failure) if failure.is_fatal_for_walk() => Err(failure),
            Err(_) => Ok((Some(link), None)),
        }
    }

    /// The profiles to choose from.
    pub(crate) fn quirks(&self) -> Result<Arc<QuirkSet>, RedfishError> {
        match &self.inner.settings.quirks {
            Some(quirks) => Ok(Arc::clone(quirks)),
            None => QuirkSet::built_in(),
        }
    }

    pub(super) async fn find_profile(&self) -> Result<Profile, RedfishError> {
        let system = self.system().await?;
        let (_, manager) = self.manager_of(&system).await?;
        self.profile_by(&system, manager.as_ref()).await
    }

    pub(super) async fn profile_by(
        &self,
        system: &System,
        manager: Option<&Resource>,
    ) -> Result<Profile, RedfishError> {
        let root = self.service_root().await?;
        let ids = self.inner.system_ids.get().map(Vec::as_slice).unwrap_or_default();
        let evidence = Evidence::gather(root.resource(), Some(system.resource()), manager).with_systems(ids);
        let profile = self.quirks()?.profile_for(&evidence);
        if let Some(at_once) = profile.max_concurrent {
            self.inner.wire.transport.gate().set_concurrency(at_once);
        }
        tracing::debug!(bmc = %self.bmc(), profiles = ?profile.names, "redfish profile");
        Ok(profile)
    }
}
