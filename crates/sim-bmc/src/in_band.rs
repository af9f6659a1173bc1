//! Changes that root on the machine makes to its BMC in band, and BMCs that do not undo them. No change goes over the
//! network: KCS and host interfaces need no password.

use super::accounts::{ACCOUNTS, SERVICE};
use super::reply::{Fault, empty, json};
use super::resources;
use super::routes::{Bmc, Object, To, digested};
use axum::extract::{Path, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use std::time::Instant;

pub(super) const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";
/// Most subscriptions of the BMC.
const SUBSCRIPTIONS_MOST: usize = 16;
pub(super) const HOST_INTERFACES: &str = "/redfish/v1/Managers/1/HostInterfaces";
const HOST_INTERFACE: &str = "/redfish/v1/Managers/1/HostInterfaces/1";
pub(super) const KCS: &str = "/redfish/v1/Managers/1/Oem/Rackwright/KCSInterface";
/// What the machine may do over KCS while KCS is open, and while it is closed.
const KCS_PRIVILEGES: [&str; 2] = ["Administrator", "Callback"];

/// The BMC's behaviour when a client reads or removes such changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessFault {
    /// It shows everything and carries out every request.
    #[default]
    None,
    /// It reports an account as removed or changed, but the account stays the same.
    RestoresAccounts,
    /// It refuses to remove or change accounts that were created in band.
    RefusesRemoval,
    /// It has no account service.
    HidesAccounts,
    /// Its list of accounts is not readable.
    FailsAccounts,
    /// It accepts the request to close KCS, and KCS stays open.
    KeepsKcs,
}

#[derive(Debug, Clone)]
struct Named {
    id: u32,
    what: String,
}

/// The in-band changes of one BMC.
#[derive(Debug, Default)]
pub(super) struct InBand {
    pub(super) fault: AccessFault,
    subscriptions: Vec<Named>,
    /// The account's number and the key.
    keys: Vec<(u32, Named)>,
    /// Address of a directory with users who may log in.
    pub(super) directory: Option<String>,
    host_interface: bool,
    kcs: bool,
    made: u32,
}

impl InBand {
    fn next(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    /// Whether an account has keys.
    pub(super) fn has_keys(&self, account: u32) -> bool {
        self.keys.iter().any(|(of, _)| *of == account)
    }
}

/// Actions of root on the machine.
impl Bmc {
    /// Sets the BMC's behaviour for removals.
    pub fn set_access_fault(&self, fault: AccessFault) {
        self.in_band().fault = fault;
    }

    /// Subscribes a destination to events.
    pub fn add_subscription(&self, destination: &str) {
        let mut left = self.in_band();
        let id = left.next();
        left.subscriptions.push(Named {
            id,
            what: destination.to_owned(),
        });
    }

    /// Adds an SSH key to the factory account.
    pub fn add_key(&self, key: &str) {
        let account = self.accounts().factory(self.host.as_ref());
        let mut left = self.in_band();
        let id = left.next();
        let key = Named {
            id,
            what: key.to_owned(),
        };
        left.keys.push((account, key));
    }

    /// Admits the users of a directory.
    pub fn add_directory(&self, address: &str) {
        self.in_band().directory = Some(address.to_owned());
    }

    pub fn open_host_interface(&self) {
        self.in_band().host_interface = true;
    }

    /// Lets the machine administer the BMC over KCS.
    pub fn open_kcs(&self) {
        self.in_band().kcs = true;
    }

    /// Whether the machine may administer the BMC over KCS.
    pub fn is_kcs_open(&self) -> bool {
        self.in_band().kcs
    }

    /// Opens a session without a password; returns its token.
    pub fn add_session(&self, user: &str) -> Option<String> {
        let opened = self.sessions().open(user, Instant::now());
        opened.ok().map(|(_, token)| token)
    }

    /// Whether a session with that token is open.
    pub fn admits_token(&self, token: &str) -> bool {
        self.sessions().admit(token, Instant::now()).is_some()
    }

    /// The remaining changes, by kind: subscriptions, keys, whether a directory is enabled, whether the host interface is
    /// open.
    pub fn left(&self) -> (usize, usize, bool, bool) {
        let left = self.in_band();
        (
            left.subscriptions.len(),
            left.keys.len(),
            left.directory.is_some(),
            left.host_interface,
        )
    }
}

/// Applies the fault of a BMC that hides its accounts or fails to list them.
pub(super) async fn obstruct(To(bmc): To, request: Request, next: Next) -> Response {
    let (fault, path) = (bmc.in_band().fault, request.uri().path());
    match fault {
        AccessFault::HidesAccounts if path.starts_with(SERVICE) => Fault::not_found(path).into_response(),
        AccessFault::FailsAccounts if path == ACCOUNTS && *request.method() == Method::GET => {
            Fault::internal("the accounts cannot be read").into_response()
        }
        _ => next.run(request).await,
    }
}

fn collection(path: &str, kind: &str, name: &str, ids: &[u32]) -> Response {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let ids = ids.iter().map(String::as_str);
    digested(&resources::collection(path, &format!("#{kind}.{kind}"), name, ids))
}

// ---- subscriptions ----

pub(super) async fn subscriptions(To(bmc): To) -> Response {
    let ids: Vec<u32> = bmc.in_band().subscriptions.iter().map(|one| one.id).collect();
    collection(SUBSCRIPTIONS, "EventDestinationCollection", "Subscriptions", &ids)
}

pub(super) async fn subscription(To(bmc): To, Path(id): Path<String>) -> Result<Response, Fault> {
    let path = format!("{SUBSCRIPTIONS}/{id}");
    let left = bmc.in_band();
    let found = left.subscriptions.iter().find(|one| one.id.to_string() == id);
    let found = found.ok_or_else(|| Fault::not_found(&path))?;
    Ok(digested(&event_destination(&path, &id, &found.what)))
}

fn event_destination(path: &str, id: &str, destination: &str) -> Value {
    json!({
        "@odata.id": path,
        "@odata.type": "#EventDestination.v1_14_0.EventDestination",
        "Id": id,
        "Name": "Subscription",
        "Destination": destination,
        "Protocol": "Redfish",
        "SubscriptionType": "RedfishEvent",
        "EventFormatType": "Event",
        "Context": "",
    })
}

/// A client subscribes over the network. No event is ever sent: only streams receive the machine's events.
pub(super) async fn subscribe(To(bmc): To, Object(wanted): Object) -> Result<Response, Fault> {
    for name in ["Destination", "Protocol"] {
        if !wanted.contains_key(name) {
            return Err(Fault::missing_property(name));
        }
    }
    let protocol = wanted["Protocol"].as_str().unwrap_or_default();
    if protocol != "Redfish" {
        return Err(Fault::not_in_list("Protocol", protocol));
    }
    let destination = wanted["Destination"].as_str().unwrap_or_default();
    if !destination.starts_with("https://") && !destination.starts_with("http://") {
        return Err(Fault::not_in_list("Destination", destination));
    }
    if bmc.in_band().subscriptions.len() >= SUBSCRIPTIONS_MOST {
        return Err(Fault::sessions_full());
    }
    bmc.add_subscription(destination);
    let id = bmc.in_band().made;
    let path = format!("{SUBSCRIPTIONS}/{id}");
    let mut response = json(
        StatusCode::CREATED,
        &event_destination(&path, &id.to_string(), destination),
    );
    let location = HeaderValue::from_str(&path).map_err(|_| Fault::internal("a header value"))?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

pub(super) async fn end_subscription(To(bmc): To, Path(id): Path<String>) -> Result<Response, Fault> {
    let mut left = bmc.in_band();
    let before = left.subscriptions.len();
    left.subscriptions.retain(|one| one.id.to_string() != id);
    if left.subscriptions.len() == before {
        return Err(Fault::not_found(&format!("{SUBSCRIPTIONS}/{id}")));
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

// ---- keys of accounts ----

pub(super) async fn keys(To(bmc): To, Path(account): Path<String>) -> Response {
    let left = bmc.in_band();
    let of_it = left.keys.iter().filter(|(of, _)| of.to_string() == account);
    let ids: Vec<u32> = of_it.map(|(_, key)| key.id).collect();
    collection(&format!("{ACCOUNTS}/{account}/Keys"), "KeyCollection", "Keys", &ids)
}

pub(super) async fn key(To(bmc): To, Path((account, id)): Path<(String, String)>) -> Result<Response, Fault> {
    let path = format!("{ACCOUNTS}/{account}/Keys/{id}");
    let left = bmc.in_band();
    let is_it = |(of, key): &&(u32, Named)| of.to_string() == account && key.id.to_string() == id;
    let (_, found) = left.keys.iter().find(is_it).ok_or_else(|| Fault::not_found(&path))?;
    Ok(digested(&json!({
        "@odata.id": path,
        "@odata.type": "#Key.v1_4_0.Key",
        "Id": id,
        "Name": "Key",
        "KeyType": "SSH",
        "KeyString": found.what,
    })))
}

pub(super) async fn delete_key(To(bmc): To, Path((account, id)): Path<(String, String)>) -> Response {
    let mut left = bmc.in_band();
    left.keys
        .retain(|(of, key)| of.to_string() != account || key.id.to_string() != id);
    empty(StatusCode::NO_CONTENT)
}

// ---- the host interface, KCS and directories ----

pub(super) async fn host_interfaces(To(_): To) -> Response {
    collection(HOST_INTERFACES, "HostInterfaceCollection", "Host Interfaces", &[1])
}

pub(super) async fn host_interface(To(bmc): To) -> Response {
    digested(&json!({
        "@odata.id": HOST_INTERFACE,
        "@odata.type": "#HostInterface.v1_3_0.HostInterface",
        "Id": "1",
        "Name": "Host Interface",
        "HostInterfaceType": "NetworkHostInterface",
        "InterfaceEnabled": bmc.in_band().host_interface,
        "AuthenticationModes": ["BasicAuth", "RedfishSessionAuth"],
    }))
}

pub(super) async fn change_host_interface(To(bmc): To, Object(wanted): Object) -> Result<Response, Fault> {
    let mut enabled = bmc.in_band().host_interface;
    for (name, value) in &wanted {
        match name.as_str() {
            "InterfaceEnabled" => enabled = value.as_bool().ok_or_else(|| Fault::wrong_type(name, value))?,
            _ => return Err(Fault::unknown_property(name)),
        }
    }
    bmc.in_band().host_interface = enabled;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// KCS as Supermicro's BMCs show it: one property bounds what the machine may do.
pub(super) async fn kcs(To(bmc): To) -> Response {
    let [open, closed] = KCS_PRIVILEGES;
    digested(&json!({
        "@odata.id": KCS,
        "@odata.type": "#KCSInterface.v1_1_0.KCSInterface",
        "Id": "KCS Interface",
        "Name": "KCS Interface",
        "Privilege": if bmc.in_band().kcs { open } else { closed },
    }))
}

pub(super) async fn change_kcs(To(bmc): To, Object(wanted): Object) -> Result<Response, Fault> {
    let mut is_open = bmc.in_band().kcs;
    for (name, value) in &wanted {
        if name != "Privilege" {
            return Err(Fault::unknown_property(name));
        }
        let privilege = value.as_str().ok_or_else(|| Fault::wrong_type(name, value))?;
        let [open, closed] = KCS_PRIVILEGES;
        is_open = match privilege {
            _ if privilege == open => true,
            _ if privilege == closed => false,
            _ => return Err(Fault::not_in_list(name, privilege)),
        };
    }
    let mut left = bmc.in_band();
    if left.fault != AccessFault::KeepsKcs {
        left.kcs = is_open;
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

/// The directory, as the account service shows it.
pub(super) fn directory(address: Option<&str>) -> Value {
    json!({
        "AccountProviderType": "LDAPService",
        "ServiceEnabled": address.is_some(),
        "ServiceAddresses": address.into_iter().collect::<Vec<_>>(),
    })
}

pub(super) async fn change_service(To(bmc): To, Object(wanted): Object) -> Result<Response, Fault> {
    for (name, value) in &wanted {
        match (name.as_str(), &value["ServiceEnabled"]) {
            ("LDAP", Value::Bool(false)) => bmc.in_band().directory = None,
            ("LDAP", other) => return Err(Fault::not_in_list("LDAP.ServiceEnabled", &other.to_string())),
            _ => return Err(Fault::unknown_property(name)),
        }
    }
    Ok(json(StatusCode::OK, &json!({})))
}
