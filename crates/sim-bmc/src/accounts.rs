//! The account service (DSP8010, `AccountService`, `ManagerAccount`): accounts that are created, changed and deleted,
//! length rules for passwords, lock-out after refused logins, fixed slots, and accounts that may only change their
//! password at first (DSP0266, "Password change required").

use super::host::Host;
use super::in_band::{self, AccessFault};
use super::reply::{Fault, empty, json, tagged};
use super::resources;
use super::routes::{Bmc, Object, To};
use super::session::same;
use axum::extract::Path;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

pub(super) const SERVICE: &str = "/redfish/v1/AccountService";
pub(super) const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
/// Most accounts of a BMC without fixed slots.
const MOST: usize = 16;
const ROLES: [&str; 3] = ["Administrator", "Operator", "ReadOnly"];

/// A BMC's rules for its accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountRules {
    /// Shortest password, in characters.
    pub min_length: usize,
    /// Longest password, in characters.
    pub max_length: usize,
    /// The factory account may only change its password.
    pub must_change: bool,
    /// The number of fixed slots: accounts are not created or deleted; the first slot is the BMC's own, the second the
    /// factory's.
    pub slots: Option<u32>,
    /// Refused logins that lock an account; none: accounts are never locked.
    pub lockout_threshold: Option<u32>,
    /// Duration of the lock, and the time after which refused logins are forgotten.
    pub lockout: Duration,
    /// A change without `If-Match` is refused.
    pub needs_etag: bool,
}

impl Default for AccountRules {
    fn default() -> Self {
        Self {
            min_length: 8,
            max_length: 20,
            must_change: false,
            slots: None,
            lockout_threshold: None,
            lockout: Duration::from_secs(30),
            needs_etag: false,
        }
    }
}

#[derive(Debug, Clone)]
enum Password {
    /// The factory password: the host knows it.
    Factory,
    Own(String),
}

#[derive(Debug, Clone)]
struct Account {
    id: u32,
    user: String,
    password: Password,
    role: &'static str,
    enabled: bool,
    must_change: bool,
    refused: u32,
    refused_at: Option<Instant>,
    locked_until: Option<Instant>,
    /// Counts changes, for the ETag.
    changes: u32,
    /// Root on the machine created it.
    in_band: bool,
}

/// The accounts of one BMC. Created at the first change of an account: a fleet has many BMCs.
#[derive(Debug)]
pub(super) struct Accounts {
    rules: AccountRules,
    list: Option<Vec<Account>>,
}

/// The result of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    Admitted,
    /// Accepted only for a change of the password of the account with this number.
    MustChange(u32),
    Refused,
}

impl Accounts {
    pub(super) fn new(rules: AccountRules) -> Self {
        Self { rules, list: None }
    }

    fn list(&mut self, host: &dyn Host) -> &mut Vec<Account> {
        let rules = self.rules;
        self.list.get_or_insert_with(|| {
            let factory = if rules.slots.is_some() { 2 } else { 1 };
            let ids = 1..=rules.slots.unwrap_or(1).max(factory);
            let account = |id| Account {
                id,
                user: if id == factory {
                    host.user().to_owned()
                } else {
                    String::new()
                },
                password: Password::Factory,
                role: ROLES[0],
                enabled: id == factory,
                must_change: id == factory && rules.must_change,
                refused: 0,
                refused_at: None,
                locked_until: None,
                changes: 0,
                in_band: false,
            };
            ids.map(account).collect()
        })
    }

    /// Checks name and password of an account. A refusal counts towards its lock-out.
    pub(super) fn log_in(&mut self, host: &dyn Host, user: &str, password: &str, now: Instant) -> Login {
        let rules = self.rules;
        if self.list.is_none() && !rules.must_change && rules.lockout_threshold.is_none() && rules.slots.is_none() {
            return if host.admits(user, password) {
                Login::Admitted
            } else {
                Login::Refused
            };
        }
        let Some(account) = self
            .list(host)
            .iter_mut()
            .find(|account| !user.is_empty() && account.user == user)
        else {
            return Login::Refused;
        };
        if account.locked_until.is_some_and(|until| now < until) {
            return Login::Refused;
        }
        let is_right = match &account.password {
            Password::Factory => host.admits(user, password),
            Password::Own(own) => same(own, password),
        };
        if account
            .refused_at
            .is_some_and(|at| now.duration_since(at) >= rules.lockout)
        {
            account.refused = 0;
        }
        if !is_right || !account.enabled {
            account.refused += 1;
            account.refused_at = Some(now);
            if rules.lockout_threshold.is_some_and(|most| account.refused >= most) {
                account.locked_until = Some(now + rules.lockout);
            }
            return Login::Refused;
        }
        (account.refused, account.locked_until) = (0, None);
        if account.must_change {
            Login::MustChange(account.id)
        } else {
            Login::Admitted
        }
    }

    /// The number of the account of that name if its password must be changed first.
    pub(super) fn must_change(&mut self, host: &dyn Host, user: &str) -> Option<u32> {
        if self.list.is_none() && !self.rules.must_change {
            return None;
        }
        let mut list = self.list(host).iter();
        list.find(|account| account.user == user && account.must_change)
            .map(|account| account.id)
    }

    /// The number of the factory account.
    pub(super) fn factory(&mut self, host: &dyn Host) -> u32 {
        let list = self.list(host);
        list.iter()
            .find(|account| account.user == host.user())
            .map_or(1, |account| account.id)
    }

    fn service(&self, directory: Value) -> Value {
        let rules = &self.rules;
        json!({
            "@odata.id": SERVICE,
            "@odata.type": "#AccountService.v1_13_0.AccountService",
            "Id": "AccountService",
            "Name": "Account Service",
            "Status": {"State": "Enabled", "Health": "OK"},
            "ServiceEnabled": true,
            "MinPasswordLength": rules.min_length,
            "MaxPasswordLength": rules.max_length,
            "AccountLockoutThreshold": rules.lockout_threshold.unwrap_or(0),
            "AccountLockoutDuration": if rules.lockout_threshold.is_some() { rules.lockout.as_secs() } else { 0 },
            "AccountLockoutCounterResetAfter": if rules.lockout_threshold.is_some() { rules.lockout.as_secs() } else { 0 },
            "Accounts": {"@odata.id": ACCOUNTS},
            "Roles": {"@odata.id": "/redfish/v1/AccountService/Roles"},
            "LDAP": directory,
        })
    }

    /// Applies a body to an account. Everything is checked before anything is changed.
    fn write(&self, account: &Account, body: &Map<String, Value>) -> Result<Account, Fault> {
        let mut next = account.clone();
        for (name, value) in body {
            let text = || value.as_str().ok_or_else(|| Fault::wrong_type(name, value));
            match name.as_str() {
                "UserName" => {
                    let user = text()?;
                    if user.len() > 32 {
                        return Err(Fault::not_in_list(name, user));
                    }
                    user.clone_into(&mut next.user);
                }
                "Password" => {
                    let password = text()?;
                    let length = password.chars().count();
                    if !(self.rules.min_length..=self.rules.max_length).contains(&length) {
                        // The value is a secret, so the message does not repeat it.
                        return Err(Fault::not_in_list(name, "of that length"));
                    }
                    next.password = Password::Own(password.to_owned());
                    (next.must_change, next.refused, next.locked_until) = (false, 0, None);
                }
                "RoleId" => {
                    let role = text()?;
                    let known = ROLES.into_iter().find(|known| *known == role);
                    next.role = known.ok_or_else(|| Fault::not_in_list(name, role))?;
                }
                "Enabled" => next.enabled = value.as_bool().ok_or_else(|| Fault::wrong_type(name, value))?,
                "AccountTypes" if *value == json!(["Redfish"]) => {}
                "AccountTypes" => return Err(Fault::not_in_list(name, &value.to_string())),
                "PasswordChangeRequired" => {
                    next.must_change = value.as_bool().ok_or_else(|| Fault::wrong_type(name, value))?;
                }
                "Locked" | "Id" | "Name" => return Err(Fault::not_writable(name)),
                name if name.contains("@odata.") => {}
                _ => return Err(Fault::unknown_property(name)),
            }
        }
        next.changes += 1;
        Ok(next)
    }
}

fn etag(account: &Account) -> String {
    let text = format!(
        "{} {} {} {}",
        account.id, account.user, account.changes, account.enabled
    );
    format!("\"{}\"", hex::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8]))
}

fn body(account: &Account, now: Instant) -> Value {
    json!({
        "@odata.id": format!("{ACCOUNTS}/{}", account.id),
        "@odata.type": "#ManagerAccount.v1_10_0.ManagerAccount",
        "Id": account.id.to_string(),
        "Name": "User Account",
        "UserName": account.user,
        "Password": null,
        "PasswordChangeRequired": account.must_change,
        "RoleId": account.role,
        "Enabled": account.enabled,
        "Locked": account.locked_until.is_some_and(|until| now < until),
        "AccountTypes": ["Redfish"],
        "Links": {"Role": {"@odata.id": format!("/redfish/v1/AccountService/Roles/{}", account.role)}},
    })
}

pub(super) async fn service(To(bmc): To) -> Response {
    let directory = in_band::directory(bmc.in_band().directory.as_deref());
    let body = bmc.accounts().service(directory);
    super::routes::digested(&body)
}

pub(super) async fn list(To(bmc): To) -> Response {
    let ids: Vec<String> = bmc
        .accounts()
        .list(bmc.host.as_ref())
        .iter()
        .map(|account| account.id.to_string())
        .collect();
    let kind = "#ManagerAccountCollection.ManagerAccountCollection";
    let body = resources::collection(ACCOUNTS, kind, "Accounts", ids.iter().map(String::as_str));
    super::routes::digested(&body)
}

fn find<'a>(list: &'a mut [Account], id: &str) -> Result<&'a mut Account, Fault> {
    let found = list.iter_mut().find(|account| account.id.to_string() == id);
    found.ok_or_else(|| Fault::not_found(&format!("{ACCOUNTS}/{id}")))
}

pub(super) async fn read(To(bmc): To, Path(id): Path<String>) -> Result<Response, Fault> {
    let mut accounts = bmc.accounts();
    let account = find(accounts.list(bmc.host.as_ref()), &id)?;
    let mut body = body(account, Instant::now());
    if bmc.in_band().has_keys(account.id) {
        body["Keys"] = json!({"@odata.id": format!("{ACCOUNTS}/{id}/Keys")});
    }
    Ok(tagged(json(StatusCode::OK, &body), &etag(account)))
}

pub(super) async fn make(To(bmc): To, Object(wanted): Object) -> Result<Response, Fault> {
    let mut accounts = bmc.accounts();
    if accounts.rules.slots.is_some() {
        return Err(Fault::method("POST"));
    }
    for name in ["UserName", "Password", "RoleId"] {
        if !wanted.contains_key(name) {
            return Err(Fault::missing_property(name));
        }
    }
    let list = accounts.list(bmc.host.as_ref()).clone();
    if list.iter().any(|account| wanted["UserName"] == account.user.as_str()) || wanted["UserName"] == "" {
        return Err(Fault::not_in_list(
            "UserName",
            wanted["UserName"].as_str().unwrap_or_default(),
        ));
    }
    if list.len() >= MOST {
        return Err(Fault::sessions_full());
    }
    let blank = Account {
        id: list.iter().map(|account| account.id).max().unwrap_or(0) + 1,
        user: String::new(),
        password: Password::Factory,
        role: ROLES[0],
        enabled: true,
        must_change: false,
        refused: 0,
        refused_at: None,
        locked_until: None,
        changes: 0,
        in_band: false,
    };
    let made = accounts.write(&blank, &wanted)?;
    let mut response = tagged(json(StatusCode::CREATED, &body(&made, Instant::now())), &etag(&made));
    let location = HeaderValue::from_str(&format!("{ACCOUNTS}/{}", made.id));
    response.headers_mut().insert(
        header::LOCATION,
        location.map_err(|_| Fault::internal("a header value"))?,
    );
    accounts.list(bmc.host.as_ref()).push(made);
    Ok(response)
}

pub(super) async fn change(
    To(bmc): To,
    Path(id): Path<String>,
    headers: HeaderMap,
    Object(wanted): Object,
) -> Result<Response, Fault> {
    // An annotation of the document itself is not a change (DSP0266, "PATCH").
    if !wanted.is_empty() && wanted.keys().all(|name| name.contains("@odata.")) {
        return Err(Fault::no_operation());
    }
    let mut accounts = bmc.accounts();
    let needs_etag = accounts.rules.needs_etag;
    let account = find(accounts.list(bmc.host.as_ref()), &id)?.clone();
    if needs_etag && !headers.contains_key(header::IF_MATCH) {
        return Err(Fault::precondition_required());
    }
    super::routes::check_match(&headers, &etag(&account))?;
    if let Some(done) = obstructed(&bmc, &account)? {
        return Ok(done);
    }
    let next = accounts.write(&account, &wanted)?;
    let list = accounts.list(bmc.host.as_ref());
    let is_taken = |other: &Account| other.id != next.id && !next.user.is_empty() && other.user == next.user;
    if list.iter().any(is_taken) {
        return Err(Fault::not_in_list("UserName", &next.user));
    }
    let etag = etag(&next);
    *find(list, &id)? = next;
    Ok(tagged(empty(StatusCode::NO_CONTENT), &etag))
}

/// The answer of a BMC that does not release an account; none if the BMC releases it.
fn obstructed(bmc: &Bmc, account: &Account) -> Result<Option<Response>, Fault> {
    match bmc.in_band().fault {
        AccessFault::RestoresAccounts if account.in_band => Ok(Some(empty(StatusCode::NO_CONTENT))),
        AccessFault::RefusesRemoval if account.in_band => Err(Fault::insufficient_privilege()),
        _ => Ok(None),
    }
}

pub(super) async fn delete(To(bmc): To, Path(id): Path<String>) -> Result<Response, Fault> {
    let mut accounts = bmc.accounts();
    if accounts.rules.slots.is_some() {
        return Err(Fault::method("DELETE"));
    }
    let list = accounts.list(bmc.host.as_ref());
    let account = find(list, &id)?.clone();
    if let Some(done) = obstructed(&bmc, &account)? {
        return Ok(done);
    }
    let id = account.id;
    list.retain(|account| account.id != id);
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Whether `user` may send this request to accounts: administrators may send all, others may change their own account.
pub(super) fn may(bmc: &Bmc, user: &str, method: &http::Method, path: &str) -> bool {
    if !path.starts_with(ACCOUNTS) || matches!(*method, http::Method::GET | http::Method::HEAD) {
        return true;
    }
    let mut accounts = bmc.accounts();
    let Some(list) = accounts.list.as_mut() else {
        return true;
    };
    let account = list.iter().find(|account| account.user == user);
    account.is_some_and(|account| {
        account.role == ROLES[0] || (*method == http::Method::PATCH && path == format!("{ACCOUNTS}/{}", account.id))
    })
}

/// Whether a client that must change its password may send this: read and change the account, and end the session.
pub(super) fn is_allowed(method: &http::Method, path: &str, id: u32) -> bool {
    let own = format!("{ACCOUNTS}/{id}");
    path == own && matches!(*method, http::Method::GET | http::Method::PATCH)
        || *method == http::Method::DELETE && path.starts_with("/redfish/v1/SessionService/Sessions/")
}

impl Bmc {
    /// Root on the machine creates an administrator, in the last free slot where accounts are fixed slots.
    pub fn add_account(&self, user: &str, password: &str) {
        let mut accounts = self.accounts();
        let has_slots = accounts.rules.slots.is_some();
        let list = accounts.list(self.host.as_ref());
        let made = Account {
            id: list.iter().map(|account| account.id).max().unwrap_or(0) + 1,
            user: user.to_owned(),
            password: Password::Own(password.to_owned()),
            role: ROLES[0],
            enabled: true,
            must_change: false,
            refused: 0,
            refused_at: None,
            locked_until: None,
            changes: 0,
            in_band: true,
        };
        let free = list.iter_mut().rfind(|account| account.user.is_empty());
        match free.filter(|_| has_slots) {
            Some(slot) => *slot = Account { id: slot.id, ..made },
            None => list.push(made),
        }
    }

    /// The names of accounts that can log in.
    pub fn users(&self) -> Vec<String> {
        let mut accounts = self.accounts();
        let list = accounts.list(self.host.as_ref()).iter();
        list.filter(|account| account.enabled)
            .map(|account| account.user.clone())
            .collect()
    }

    /// Whether a password is valid for an account, without counting as a login: for tests.
    pub fn opens(&self, user: &str, password: &str) -> bool {
        let mut accounts = self.accounts();
        let Some(account) = accounts
            .list(self.host.as_ref())
            .iter()
            .find(|account| account.user == user)
            .cloned()
        else {
            return false;
        };
        account.enabled
            && match &account.password {
                Password::Factory => self.host.admits(user, password),
                Password::Own(own) => same(own, password),
            }
    }

    /// The number of refused logins since the last good one, and whether the account is locked: for tests.
    pub fn refusals(&self, user: &str) -> (u32, bool) {
        let mut accounts = self.accounts();
        let mut list = accounts.list(self.host.as_ref()).iter();
        let account = list.find(|account| account.user == user);
        account.map_or((0, false), |account| {
            (
                account.refused,
                account.locked_until.is_some_and(|until| Instant::now() < until),
            )
        })
    }
}
