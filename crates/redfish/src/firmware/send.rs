//! Sends firmware in the first offered way, in the profile's order.

use std::path::PathBuf;

use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::retry::Repeat;
use rackwright_redfish_wire::transport::Reply;
use rackwright_redfish_wire::upload::Upload;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FirmwareEntry, UpdateOffer};
use crate::client::BmcClient;
use crate::quirks::{UpdateMethod, UpdateProfile, UpdateTargets};
use crate::resource::Resource;
use crate::task::TaskHandle;

/// A firmware file.
#[derive(Debug, Clone)]
pub struct FirmwareImage {
    /// Path of the file.
    pub file: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// The file name for the BMC: some BMCs depend on its ending.
    pub name: String,
    /// The URL from which the BMC can fetch the file, for `SimpleUpdate`; none: not possible.
    pub url: Option<String>,
}

/// An update that a BMC has accepted: enough for another process to poll it later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateTicket {
    /// The way in which it was sent.
    pub method: Option<UpdateMethod>,
    /// The paths to poll, first the task and then its monitor; empty if the BMC gave neither.
    pub places: Vec<String>,
}

impl BmcClient {
    /// Sends an update of one piece of firmware to the BMC and returns when the BMC has accepted it.
    ///
    /// A request that may have begun an update is not repeated.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if no offered way is possible with this image; otherwise the BMC's error to the last
    /// attempt.
    pub async fn start_update(
        &self,
        entry: &FirmwareEntry,
        image: &FirmwareImage,
    ) -> Result<UpdateTicket, RedfishError> {
        let profile = self.profile().await?.update.clone();
        let service = self.update_service().await?;
        let offer = UpdateOffer::of(&service);
        if let Some(most) = offer.max_bytes
            && image.bytes > most
        {
            return Err(self.no_method_error(format!(
                "files of at most {most} bytes; this file has {} bytes",
                image.bytes
            )));
        }
        let mut refusal = None;
        for method in &profile.ways {
            let order = Order {
                client: self,
                service: &service,
                offer: &offer,
                profile: &profile,
                entry,
                image,
            };
            let sent = match method {
                UpdateMethod::Multipart => order.multipart().await,
                UpdateMethod::Push => order.push().await,
                UpdateMethod::Simple => order.simple().await,
            };
            match sent {
                Ok(Some(reply)) => {
                    let task = TaskHandle::of(&reply, self.bmc());
                    return Ok(UpdateTicket {
                        method: Some(*method),
                        places: task.map(|task| task.places()).unwrap_or_default(),
                    });
                }
                Ok(None) => {}
                // The BMC names this way but does not have it: the next way may work.
                Err(failure) if matches!(failure.status(), Some(404 | 405 | 501)) => refusal = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Err(refusal.unwrap_or_else(|| self.no_method_error(offered_methods(&offer, image))))
    }

    fn no_method_error(&self, offered: String) -> RedfishError {
        RedfishError::NotOffered {
            bmc: self.address(),
            what: "an update of this firmware with this file".to_owned(),
            offered,
        }
    }
}

fn offered_methods(offer: &UpdateOffer, image: &FirmwareImage) -> String {
    if offer.is_empty() {
        return "no method to update firmware".to_owned();
    }
    match (&offer.simple, &image.url) {
        (Some(_), None) => "SimpleUpdate, but there is no URL from which the BMC can fetch this file".to_owned(),
        _ => "only methods that its profile excludes".to_owned(),
    }
}

/// One update to send.
struct Order<'a> {
    client: &'a BmcClient,
    service: &'a Resource,
    offer: &'a UpdateOffer,
    profile: &'a UpdateProfile,
    entry: &'a FirmwareEntry,
    image: &'a FirmwareImage,
}

impl Order<'_> {
    fn targets(&self) -> Vec<String> {
        match self.profile.targets {
            UpdateTargets::Entry => vec![self.entry.path.clone()],
            UpdateTargets::Related if !self.entry.related.is_empty() => self.entry.related.clone(),
            UpdateTargets::Related => vec![self.entry.path.clone()],
            UpdateTargets::None => Vec::new(),
        }
    }

    fn parameters(&self) -> Value {
        let mut parameters = json!({});
        // The standard requires the list even if it is empty.
        parameters["Targets"] = json!(self.targets());
        let time = "Immediate";
        if self.offer.apply_times.iter().any(|listed| listed == time) {
            parameters["@Redfish.OperationApplyTime"] = json!(time);
        }
        for (name, value) in &self.profile.parameters {
            parameters[name] = value.clone();
        }
        parameters
    }

    async fn multipart(&self) -> Result<Option<Reply>, RedfishError> {
        let Some(uri) = &self.offer.multipart else {
            return Ok(None);
        };
        let url = self.client.bmc().resolve(None, uri)?;
        let upload = Upload::multipart(
            url,
            self.image.file.clone(),
            self.image.bytes,
            &self.parameters(),
            self.profile.oem_parameters_for(&self.entry.id),
            &self.image.name,
        );
        self.claimed(&upload).await.map(Some)
    }

    async fn push(&self) -> Result<Option<Reply>, RedfishError> {
        let Some(uri) = &self.offer.push else {
            return Ok(None);
        };
        let url = self.client.bmc().resolve(None, uri)?;
        let upload = Upload::bare(url, self.image.file.clone(), self.image.bytes);
        let targets = self.targets();
        // The bare file names no target. If the service has a property for targets, they are written there first.
        if self.service.at(&["HttpPushUriTargets"]).is_some() && !self.profile.claim && !targets.is_empty() {
            self.patch_service(&json!({"HttpPushUriTargets": targets})).await?;
        }
        self.claimed(&upload).await.map(Some)
    }

    /// Uploads. If the profile requires it, the service is claimed before and released afterwards.
    async fn claimed(&self, upload: &Upload) -> Result<Reply, RedfishError> {
        const BUSY: &str = "HttpPushUriTargetsBusy";
        if !self.profile.claim || self.service.at(&[BUSY]).is_none() {
            return self.client.upload(upload).await;
        }
        if self.service.flag(&[BUSY]) == Some(true) {
            return Err(RedfishError::WaitedTooLong {
                bmc: self.client.address(),
                what: "the end of another client's update (HttpPushUriTargetsBusy)".to_owned(),
                waited_s: 0,
                last: "true".to_owned(),
            });
        }
        self.patch_service(&json!({BUSY: true, "HttpPushUriTargets": self.targets()}))
            .await?;
        let sent = self.client.upload(upload).await;
        let freed = self
            .patch_service(&json!({BUSY: false, "HttpPushUriTargets": []}))
            .await;
        if let Err(failure) = freed {
            tracing::warn!(%failure, "cannot release the claim on the update service");
        }
        sent
    }

    async fn patch_service(&self, body: &Value) -> Result<(), RedfishError> {
        let service = self.client.get(self.service.path()).await?;
        self.client.patch(&service, body).await.map(drop)
    }

    async fn simple(&self) -> Result<Option<Reply>, RedfishError> {
        let (Some(target), Some(url)) = (&self.offer.simple, &self.image.url) else {
            return Ok(None);
        };
        let mut last = None;
        for body in self.simple_bodies(url) {
            match self.client.post(target, &body, Repeat::IfRefused).await {
                Ok(reply) => return Ok(Some(reply)),
                Err(failure) if matches!(failure.status(), Some(400 | 422)) => last = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        last.map_or(Ok(None), Err)
    }

    /// Bodies to try: the standard's, with a separate protocol if the BMC lists protocols; then a body with
    /// credentials for a server without a login, which some BMCs require.
    fn simple_bodies(&self, url: &str) -> Vec<Value> {
        let protocol = url.split("://").next().unwrap_or_default().to_ascii_uppercase();
        let targets = self.targets();
        let mut body = json!({"ImageURI": url, "TransferProtocol": protocol});
        if !targets.is_empty() {
            body["Targets"] = json!(targets);
        }
        if self.profile.bare_simple_uri
            && let Some((_, rest)) = url.split_once("://")
        {
            body["ImageURI"] = json!(rest);
        }
        for (name, value) in &self.profile.parameters {
            body[name] = value.clone();
        }
        let mut bodies = Vec::new();
        if !self.profile.dummy_credentials {
            bodies.push(body.clone());
            let mut without = body.clone();
            if let Some(without) = without.as_object_mut() {
                without.remove("TransferProtocol");
            }
            bodies.push(without);
        }
        body["Username"] = json!("none");
        body["Password"] = json!("none");
        bodies.push(body);
        bodies
    }
}
