//! Virtual media: the machine sees an image behind a URL as a drive.

use std::time::Duration;

use rackwright_redfish_wire::address::same_resource;
use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::retry::Repeat;
use serde_json::{Value, json};

use crate::client::BmcClient;
use crate::views::{Manager, MediaKind, VirtualMedia};

/// How long a BMC may take to fetch and insert an image.
const INSERT_TIMEOUT: Duration = Duration::from_secs(120);

impl BmcClient {
    /// All virtual drives, those of the system before those of its managers.
    ///
    /// # Errors
    /// Those of [`system`](Self::system). Unreadable drives are left out.
    pub async fn virtual_media(&self) -> Result<Vec<VirtualMedia>, RedfishError> {
        let system = self.system().await?;
        let mut collections: Vec<String> = system.virtual_media().into_iter().collect();
        for link in self.manager_links(&system).await? {
            match self.get(&link).await {
                Ok(manager) => collections.extend(Manager::from(manager).virtual_media()),
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        let mut links: Vec<String> = Vec::new();
        for collection in collections {
            match self.member_links(&collection).await {
                Ok(members) => {
                    let fresh = members
                        .into_iter()
                        .filter(|link| !links.iter().any(|known| same_resource(known, link)));
                    let fresh: Vec<String> = fresh.collect();
                    links.extend(fresh);
                }
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        let mut slots = Vec::new();
        for (_, outcome) in self.get_each(&links).await {
            match outcome {
                Ok(resource) => slots.push(VirtualMedia::from(resource)),
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        Ok(slots)
    }

    /// Inserts an image into the first virtual drive of this kind that accepts it. A medium already in the drive is
    /// ejected. Returns the drive as it reads afterwards.
    ///
    /// The image's URL should have no query: some BMCs refuse one.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] without such a drive; otherwise the error of the last drive.
    pub async fn insert_media(&self, image_url: &str, kind: MediaKind) -> Result<VirtualMedia, RedfishError> {
        let slots = self.virtual_media().await?;
        let mut refusal = None;
        for slot in slots.iter().filter(|slot| slot.accepts(kind)) {
            match self.insert_into(slot, image_url).await {
                Ok(slot) => return Ok(slot),
                // A slot that only the BMC's own viewer can fill answers with one of these; the next slot may work.
                Err(failure) if matches!(failure.status(), Some(400 | 404 | 405 | 409 | 500 | 501)) => {
                    refusal = Some(failure)
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(refusal.unwrap_or_else(|| RedfishError::NotOffered {
            bmc: self.address(),
            what: format!("a virtual {kind:?} drive"),
            offered: slots
                .iter()
                .map(|slot| format!("{} {:?}", slot.id(), slot.media_types()))
                .collect::<Vec<_>>()
                .join(", "),
        }))
    }

    /// Ejects the medium of a virtual drive. An empty drive stays empty.
    ///
    /// # Errors
    /// The BMC's error, if the drive still reads as filled.
    pub async fn eject_media(&self, slot: &VirtualMedia) -> Result<VirtualMedia, RedfishError> {
        let outcome = match slot.eject() {
            Some(action) => self.post(&action.target, &json!({}), Repeat::Always).await,
            None => {
                self.patch(slot.resource(), &json!({"Image": null, "Inserted": false}))
                    .await
            }
        };
        let finished = match outcome {
            Ok(reply) => self.finish(&reply, INSERT_TIMEOUT).await,
            Err(failure) => Err(failure),
        };
        match finished {
            Ok(()) => {
                self.wait_for_media(slot.path(), "the ejection of the medium", |slot| !slot.is_inserted())
                    .await
            }
            // Some BMCs answer an error for an empty drive: the reading decides.
            Err(failure) if failure.status().is_some() => {
                let slot = VirtualMedia::from(self.get(slot.path()).await?);
                if slot.is_inserted() { Err(failure) } else { Ok(slot) }
            }
            Err(failure) => Err(failure),
        }
    }

    async fn insert_into(&self, slot: &VirtualMedia, image_url: &str) -> Result<VirtualMedia, RedfishError> {
        if slot.is_inserted() || slot.image().is_some() {
            self.eject_media(slot).await?;
        }
        let mut last = None;
        for body in payloads(slot, image_url) {
            let outcome = match slot.insert() {
                Some(action) => self.post(&action.target, &body, Repeat::IfRefused).await,
                None => {
                    let fresh = self.get(slot.path()).await?;
                    self.patch(&fresh, &body).await
                }
            };
            match outcome {
                Ok(reply) => {
                    self.finish(&reply, INSERT_TIMEOUT).await?;
                    let what = "the insertion of the medium";
                    return self
                        .wait_for_media(slot.path(), what, |slot| slot.is_inserted() && slot.image().is_some())
                        .await;
                }
                Err(failure) if matches!(failure.status(), Some(400 | 422)) => last = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| RedfishError::NotOffered {
            bmc: self.address(),
            what: format!("inserting into {}", slot.path()),
            offered: "nothing".to_owned(),
        }))
    }

    async fn wait_for_media(
        &self,
        link: &str,
        what: &str,
        is_there: impl Fn(&VirtualMedia) -> bool,
    ) -> Result<VirtualMedia, RedfishError> {
        let settings = self.settings();
        let mut poll = Poll::new(
            &*settings.environment,
            settings.poll_first,
            settings.poll_cap,
            settings.read_back_timeout,
        );
        loop {
            let slot = VirtualMedia::from(self.get(link).await?);
            if is_there(&slot) {
                return Ok(slot);
            }
            if !poll.pause(None).await {
                return Err(RedfishError::WaitedTooLong {
                    bmc: self.address(),
                    what: format!("{what} in {link}"),
                    waited_s: poll.elapsed().as_secs(),
                    last: format!("Inserted {}, Image {:?}", slot.is_inserted(), slot.image()),
                });
            }
        }
    }
}

/// Bodies to try. The smallest comes first: Supermicro refuses `Inserted` and `WriteProtected`, which are the
/// defaults anyway. Then follow bodies for BMCs that require more, up to credentials for a server without a login
/// (DGX).
fn payloads(slot: &VirtualMedia, image_url: &str) -> Vec<Value> {
    if slot.insert().is_none() {
        return vec![
            json!({"Image": image_url, "Inserted": true}),
            json!({"Image": image_url}),
        ];
    }
    let protocol = image_url.split("://").next().unwrap_or_default().to_ascii_uppercase();
    let mut body = json!({"Image": image_url});
    let mut bodies = vec![body.clone()];
    bodies.push(json!({"Image": image_url, "Inserted": true, "WriteProtected": true}));
    for (name, value) in [
        ("TransferProtocolType", protocol.as_str()),
        ("TransferMethod", "Stream"),
        ("UserName", "none"),
    ] {
        body[name] = json!(value);
        if name == "UserName" {
            body["Password"] = json!("none");
        }
        bodies.push(body.clone());
    }
    bodies
}
