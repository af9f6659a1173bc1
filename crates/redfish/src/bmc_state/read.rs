//! Reads the state of a BMC.

use rackwright_redfish_wire::address::same_resource;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use serde_json::{Value, json};

use super::items::{
    account, boot_override, can_admit_logins, directory, host_interface, item, medium, open_switch, session,
    subscription, switch_path,
};
use super::{BmcState, Remedy, Shown, StateItem, StateListed, StatePart, StateScope};
use crate::client::BmcClient;
use crate::resource::Resource;
use crate::views::{Manager, System};

/// Directories that are properties of the account service itself.
const DIRECTORIES: [&str; 4] = ["LDAP", "ActiveDirectory", "TACACSplus", "OAuth2"];

/// The result of reading something that may be absent.
pub(super) enum Found<T> {
    Present(T),
    NotOffered,
    Unread(String),
}

impl<T> Found<T> {
    /// Converts a found value by `then`, for the caller.
    pub(super) fn shown<U>(self, then: impl FnOnce(T) -> U) -> Shown<U> {
        match self {
            Self::Present(it) => Shown::Known(then(it)),
            Self::NotOffered => Shown::NotOffered,
            Self::Unread(why) => Shown::Unread(why),
        }
    }

    /// Converts a found value by `then` into items.
    fn listed(self, then: impl FnOnce(T) -> Vec<StateItem>) -> StateListed {
        match self {
            Self::Present(it) => StateListed::Whole(then(it)),
            Self::NotOffered => StateListed::NotOffered,
            Self::Unread(why) => StateListed::Unread(why),
        }
    }
}

impl BmcClient {
    /// Reads the state of the BMC, part by part.
    ///
    /// # Errors
    /// A fault of the whole BMC. The fault of a single part is reported with the part.
    pub async fn bmc_state(&self, scope: StateScope<'_>) -> Result<BmcState, RedfishError> {
        let system = self.system().await?;
        let managers = self.state_managers(&system).await?;
        let mut parts = Vec::new();
        self.read_accounts(scope.own, &mut parts).await?;
        parts.push((StatePart::Subscriptions, self.read_subscriptions().await?));
        parts.push((StatePart::Media, self.read_media(&system, &managers).await?));
        let boot = system.boot();
        parts.push((StatePart::BootOverride, StateListed::Whole(boot_override(&system))));
        if scope.in_band {
            parts.push((StatePart::HostInterfaces, self.read_host_interfaces(&managers).await?));
            parts.push((StatePart::Kcs, self.read_kcs(&managers).await?));
        }
        // Sessions come last: an account seen earlier may be gone by now while its session remains.
        parts.push((StatePart::Sessions, self.read_sessions().await?));
        let uefi = match scope.uefi {
            true => Some(self.read_uefi(&system).await?),
            false => None,
        };
        Ok(BmcState {
            parts,
            boot_order: boot.order,
            uefi,
        })
    }

    async fn state_managers(&self, system: &System) -> Result<Found<Vec<Resource>>, RedfishError> {
        let links = match self.manager_links(system).await {
            Ok(links) => links,
            Err(failure) => return unread(failure),
        };
        let mut managers = Vec::new();
        for link in links {
            match self.find(Some(link)).await? {
                Found::Present(manager) => managers.push(manager),
                Found::NotOffered => return Ok(Found::Unread("the system links to a missing manager".into())),
                Found::Unread(why) => return Ok(Found::Unread(why)),
            }
        }
        Ok(Found::Present(managers))
    }

    /// Accounts, directories, and keys of our own account.
    async fn read_accounts(&self, own: &str, parts: &mut Vec<(StatePart, StateListed)>) -> Result<(), RedfishError> {
        let service = self.find(self.service_root().await?.account_service()).await?;
        let accounts = match &service {
            Found::Present(service) => self.find_members(service.link(&["Accounts"]), None).await?,
            Found::NotOffered => Found::NotOffered,
            Found::Unread(why) => Found::Unread(why.clone()),
        };
        let keys = match &accounts {
            Found::Present(accounts) => self.read_keys(own, accounts).await?,
            Found::NotOffered => StateListed::NotOffered,
            Found::Unread(why) => StateListed::Unread(why.clone()),
        };
        let directories = match &service {
            Found::Present(service) => self.read_directories(service).await?,
            Found::NotOffered => StateListed::NotOffered,
            Found::Unread(why) => StateListed::Unread(why.clone()),
        };
        let accounts = accounts.listed(|all| all.into_iter().filter_map(account).collect());
        parts.push((StatePart::Accounts, accounts));
        parts.push((StatePart::Directories, directories));
        parts.push((StatePart::Keys, keys));
        Ok(())
    }

    async fn read_directories(&self, service: &Resource) -> Result<StateListed, RedfishError> {
        let mut items = Vec::new();
        for name in DIRECTORIES {
            let is_on = service.flag(&[name, "ServiceEnabled"]) == Some(true);
            if is_on
                && service
                    .at(&[name])
                    .is_some_and(|provider| can_admit_logins(name, provider))
            {
                let write = json!({name: {"ServiceEnabled": false}});
                let addresses = service.texts(&[name, "ServiceAddresses"]);
                items.push(directory(name.to_owned(), &addresses, service.path(), write));
            }
        }
        let Some(further) = service.link(&["AdditionalExternalAccountProviders"]) else {
            return Ok(StateListed::Whole(items));
        };
        let found = match self.expanded_values(&further).await {
            Ok(values) => self.members_of(&further, values, None).await,
            // Refused even to an administrator: the BMC has no licence for directories.
            Err(failure) if matches!(failure.refusal_status(), Some(400 | 403 | 404 | 405 | 410 | 501)) => {
                Ok(Vec::new())
            }
            Err(failure) => Err(failure),
        };
        match found {
            Err(failure) => return unread(failure).map(|found: Found<()>| found.listed(|()| Vec::new())),
            Ok(providers) => {
                let enabled = providers
                    .iter()
                    .filter(|one| one.flag(&["ServiceEnabled"]) != Some(false));
                let item = |one: &Resource| {
                    let write = json!({"ServiceEnabled": false});
                    directory(one.id(), &one.texts(&["ServiceAddresses"]), one.path(), write)
                };
                items.extend(enabled.map(item));
            }
        }
        Ok(StateListed::Whole(items))
    }

    async fn read_keys(&self, own: &str, accounts: &[Resource]) -> Result<StateListed, RedfishError> {
        let is_own = |one: &&Resource| {
            one.text(&["UserName"])
                .is_some_and(|user| user.eq_ignore_ascii_case(own))
        };
        let Some(account) = accounts.iter().find(is_own) else {
            return Ok(StateListed::NotOffered);
        };
        let property = &self.profile().await?.account_keys;
        let names: Vec<&str> = property.iter().map(String::as_str).collect();
        let mut items = Vec::new();
        if !names.is_empty() {
            let texts = account.texts(&names).into_iter().chain(account.text(&names));
            let filled = texts.filter(|text| !text.trim().is_empty());
            items.extend(filled.enumerate().map(|(n, _)| {
                let remedy = Remedy::None;
                item(
                    StatePart::Keys,
                    format!("{} {n}", names.join("/")),
                    String::new(),
                    account.path(),
                    remedy,
                )
            }));
        }
        let mut is_offered = !names.is_empty();
        for list in ["Keys", "Certificates"] {
            match self.find_members(account.link(&[list]), None).await? {
                Found::NotOffered => continue,
                Found::Unread(why) => return Ok(StateListed::Unread(why)),
                Found::Present(keys) => items.extend(keys.iter().map(|key| {
                    let kind = key.text(&["KeyType"]).or_else(|| key.text(&["CertificateType"]));
                    item(
                        StatePart::Keys,
                        key.id(),
                        kind.unwrap_or_default(),
                        key.path(),
                        Remedy::Delete,
                    )
                })),
            }
            is_offered = true;
        }
        Ok(if is_offered {
            StateListed::Whole(items)
        } else {
            StateListed::NotOffered
        })
    }

    async fn read_subscriptions(&self) -> Result<StateListed, RedfishError> {
        let link = match self.find(self.service_root().await?.event_service()).await? {
            Found::Present(service) => service.link(&["Subscriptions"]),
            Found::NotOffered => None,
            Found::Unread(why) => return Ok(StateListed::Unread(why)),
        };
        let found = self.find_members(link, None).await?;
        Ok(found.listed(|all| all.iter().filter_map(subscription).collect()))
    }

    async fn read_sessions(&self) -> Result<StateListed, RedfishError> {
        let root = self.service_root().await?;
        let link = match root.sessions() {
            Some(link) => Some(link),
            None => match self.find(root.session_service()).await? {
                Found::Present(service) => service.link(&["Sessions"]),
                Found::NotOffered => None,
                Found::Unread(why) => return Ok(StateListed::Unread(why)),
            },
        };
        let own = self.own_session().await;
        let found = self.find_members(link, own.as_deref()).await?;
        Ok(found.listed(|all| all.iter().map(session).collect()))
    }

    async fn read_media(&self, system: &System, managers: &Found<Vec<Resource>>) -> Result<StateListed, RedfishError> {
        let mut links: Vec<String> = system.virtual_media().into_iter().collect();
        match managers {
            Found::Unread(why) => return Ok(StateListed::Unread(why.clone())),
            Found::NotOffered => {}
            Found::Present(managers) => {
                let more = managers
                    .iter()
                    .filter_map(|one| Manager::from(one.clone()).virtual_media());
                links.extend(more);
            }
        }
        let found = self.find_in_all(links).await?;
        Ok(found.listed(|slots| slots.into_iter().filter_map(medium).collect()))
    }

    async fn read_host_interfaces(&self, managers: &Found<Vec<Resource>>) -> Result<StateListed, RedfishError> {
        let links = match managers {
            Found::Present(managers) => managers
                .iter()
                .filter_map(|one| one.link(&["HostInterfaces"]))
                .collect(),
            Found::NotOffered => Vec::new(),
            Found::Unread(why) => return Ok(StateListed::Unread(why.clone())),
        };
        let found = self.find_in_all(links).await?;
        Ok(found.listed(|all| all.iter().filter_map(host_interface).collect()))
    }

    async fn read_kcs(&self, managers: &Found<Vec<Resource>>) -> Result<StateListed, RedfishError> {
        let switches = self.profile().await?.in_band.clone();
        let managers = match managers {
            Found::Present(managers) => managers,
            Found::NotOffered => return Ok(StateListed::NotOffered),
            Found::Unread(why) => return Ok(StateListed::Unread(why.clone())),
        };
        let mut items = Vec::new();
        let mut is_offered = false;
        for manager in managers {
            for switch in &switches {
                let holder = match self.find(Some(switch_path(manager, switch))).await? {
                    Found::Present(holder) => holder,
                    Found::NotOffered => continue,
                    Found::Unread(why) => return Ok(StateListed::Unread(why)),
                };
                let names: Vec<&str> = switch.property.iter().map(String::as_str).collect();
                let Some(seen) = holder.at(&names) else { continue };
                is_offered = true;
                items.extend(open_switch(switch, &names, seen, holder.path()));
            }
        }
        Ok(if is_offered {
            StateListed::Whole(items)
        } else {
            StateListed::NotOffered
        })
    }

    pub(super) async fn find(&self, link: Option<String>) -> Result<Found<Resource>, RedfishError> {
        let Some(link) = link else { return Ok(Found::NotOffered) };
        match self.get(&link).await {
            Ok(resource) => Ok(Found::Present(resource)),
            Err(failure) if is_absent(&failure) => Ok(Found::NotOffered),
            Err(failure) => unread(failure),
        }
    }

    /// The members of several collections; each collection is read once.
    async fn find_in_all(&self, links: Vec<String>) -> Result<Found<Vec<Resource>>, RedfishError> {
        let mut all = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        let mut is_offered = false;
        for link in links {
            if seen.iter().any(|known| same_resource(known, &link)) {
                continue;
            }
            match self.find_members(Some(link.clone()), None).await? {
                Found::Present(members) => {
                    is_offered = true;
                    let fresh = |one: &Resource| !seen.iter().any(|known| same_resource(known, one.path()));
                    let fresh: Vec<Resource> = members.into_iter().filter(fresh).collect();
                    seen.extend(fresh.iter().map(|one| one.path().to_owned()));
                    all.extend(fresh);
                }
                Found::NotOffered => {}
                Found::Unread(why) => return Ok(Found::Unread(why)),
            }
            seen.push(link);
        }
        Ok(if is_offered {
            Found::Present(all)
        } else {
            Found::NotOffered
        })
    }

    /// The members of a collection that `wanted` selects by their entries.
    pub(super) async fn find_some_members(
        &self,
        link: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Found<Vec<Resource>>, RedfishError> {
        let mut values = match self.expanded_values(link).await {
            Ok(values) => values,
            Err(failure) if is_absent(&failure) => return Ok(Found::NotOffered),
            Err(failure) => return unread(failure),
        };
        values.retain(wanted);
        match self.members_of(link, values, None).await {
            Ok(members) => Ok(Found::Present(members)),
            Err(failure) => unread(failure),
        }
    }

    /// The members of a collection, except the one at `skip`.
    pub(super) async fn find_members(
        &self,
        link: Option<String>,
        skip: Option<&str>,
    ) -> Result<Found<Vec<Resource>>, RedfishError> {
        let Some(link) = link else { return Ok(Found::NotOffered) };
        let values = match self.expanded_values(&link).await {
            Ok(values) => values,
            Err(failure) if is_absent(&failure) => return Ok(Found::NotOffered),
            Err(failure) => return unread(failure),
        };
        match self.members_of(&link, values, skip).await {
            Ok(members) => Ok(Found::Present(members)),
            // A listed member that does not exist also makes the list incomplete.
            Err(failure) => unread(failure),
        }
    }

    /// The entries of a collection, in full where the BMC can expand them.
    async fn expanded_values(&self, link: &str) -> Result<Vec<Value>, RedfishError> {
        let root = self.service_root().await?;
        let can = |what| {
            root.resource()
                .flag(&["ProtocolFeaturesSupported", "ExpandQuery", what])
                == Some(true)
        };
        if can("NoLinks") && can("Levels") && !link.contains('?') {
            match self.member_values(&format!("{link}?$expand=.($levels=1)")).await {
                Ok(values) => return Ok(values),
                // Some BMCs claim to expand collections and fail.
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        self.member_values(link).await
    }

    async fn members_of(
        &self,
        link: &str,
        values: Vec<Value>,
        skip: Option<&str>,
    ) -> Result<Vec<Resource>, RedfishError> {
        let (mut whole, mut links) = (Vec::new(), Vec::new());
        for value in values {
            let Some(path) = json::link(&value, &[]) else {
                return Err(self.no_member_list(link));
            };
            if skip.is_some_and(|skip| same_resource(skip, &path)) {
                continue;
            }
            // An expanded member has its own id beside its link.
            if value.get("Id").is_some() {
                let etag = json::text(&value, &["@odata.etag"]);
                whole.push(Resource::new(path, etag, value));
            } else {
                links.push(path);
            }
        }
        for (_, fetched) in self.get_each(&links).await {
            whole.push(fetched?);
        }
        Ok(whole)
    }

    /// The entries of a collection as the BMC writes them, over all pages; fewer than the reported number is an error.
    async fn member_values(&self, link: &str) -> Result<Vec<Value>, RedfishError> {
        let mut values: Vec<Value> = Vec::new();
        let (mut is_list, mut counted) = (true, 0);
        let most = self.settings().limits.pages;
        self.pages(link, most, |page| {
            match page.at(&["Members"]).and_then(Value::as_array) {
                Some(members) => values.extend(members.iter().cloned()),
                None => is_list = false,
            }
            counted = counted.max(page.whole(&["Members@odata.count"]).unwrap_or(0));
            values.len()
        })
        .await?;
        if !is_list || counted > values.len() as u64 {
            return Err(self.no_member_list(link));
        }
        Ok(values)
    }

    fn no_member_list(&self, link: &str) -> RedfishError {
        RedfishError::MissingProperty {
            bmc: self.address(),
            path: link.to_owned(),
            property: "Members",
            consequence: "the content of the list is unknown",
        }
    }
}

fn is_absent(failure: &RedfishError) -> bool {
    matches!(failure.status(), Some(404 | 410))
}

pub(super) fn unread<T>(failure: RedfishError) -> Result<Found<T>, RedfishError> {
    if failure.is_fatal_for_walk() {
        return Err(failure);
    }
    let mut why = failure.to_string();
    if let Some(cause) = std::error::Error::source(&failure) {
        why.push_str(&format!(": {cause}"));
    }
    Ok(Found::Unread(why))
}
