//! The member of a person that the provider has identified, and the member's rights.

use std::sync::Arc;

use rackwright_identity::{ClientIdentity, TokenHash, new_epoch};
use rackwright_lifecycle::{EventKind, Timestamp};
use rackwright_oidc::Person;
use rackwright_site::model::Site;
use rackwright_store::{EventRow, MemberOrigin, MemberRecord, MemberRow, WriteTx};

use crate::api_error::ApiError;
use crate::audit::call;
use crate::clock;
use crate::config::web::oidc::Settings;
use crate::core::Core;

/// The purpose of finished logins in the common token table.
const PURPOSE: &str = "oidc";

/// A person that the provider has identified. In the extensions of a request, only the listener of the web console puts one.
#[derive(Debug, Clone)]
pub struct ProviderLogin {
    /// The person.
    pub origin: MemberOrigin,
    /// The name for a new member. `None`: the provider gives none.
    pub name: Option<String>,
    /// What the table of the settings gives. `None`: no row fits.
    pub rights: Option<MemberRow>,
    /// The secret of the login. It opens one session, or gives one certificate.
    pub login: TokenHash,
    /// The login has to end before this time.
    pub until: Timestamp,
}

/// The member of a login, as it is now.
#[derive(Debug)]
pub struct LoggedIn {
    /// The member's name.
    pub member: String,
    /// The member's epoch. Sessions and certificates of another epoch are invalid.
    pub epoch: u64,
    /// The member's role and customer.
    pub rights: MemberRow,
}

impl ProviderLogin {
    /// The login of a person, which ends before `until`, with the secret of this login.
    #[must_use]
    pub fn of(settings: &Settings, person: Person, (login, until): (TokenHash, Timestamp)) -> Self {
        Self {
            rights: settings.rights(&person.groups),
            name: person.name,
            origin: MemberOrigin {
                issuer: person.issuer,
                subject: person.subject,
            },
            login,
            until,
        }
    }

    /// The member of the person, within the change that uses the login. The first login makes the member. Each login
    /// gives it the rights of the table.
    ///
    /// # Errors
    /// The login was used before, no row of the table fits, the name is not usable or taken, or the database failed.
    pub async fn member(&self, core: &Core) -> Result<(WriteTx, LoggedIn), ApiError> {
        Members(core).of(self).await
    }

    fn event(&self, member: &str, kind: EventKind, message: String) -> EventRow {
        EventRow {
            at: clock::now(),
            kind,
            target: format!("members/{member}"),
            message,
            attributes: [("issuer".to_owned(), self.origin.issuer.clone())].into(),
            ..EventRow::default()
        }
    }
}

/// The members of persons.
struct Members<'a>(&'a Core);

impl Members<'_> {
    async fn of(&self, login: &ProviderLogin) -> Result<(WriteTx, LoggedIn), ApiError> {
        // A row for a customer that the site does not have gives nothing.
        let (mut rights, mut fault) = (login.rights.clone(), None);
        if let Some(given) = &rights
            && let Err(why) = self.0.sites.check_customer(&self.0.store, &given.customer).await?
        {
            (rights, fault) = (None, Some(format!("web.oidc.members: {why}")));
        }
        let name = self.name_of(login, rights.as_ref()).await?;
        let mut tx = self.0.store.write().await?;
        // Locks the member before the token, in the same order as the revocation of a member.
        let found = tx.member_of(&login.origin).await?;
        if let Some(found) = &found {
            call::note_target(&format!("members/{}", found.name));
        }
        let hash = login.login.to_hex();
        if !tx.use_once(&hash, PURPOSE, login.until, clock::now()).await? {
            return Err(ApiError::Unauthenticated(
                "this login was used before; begin another".into(),
            ));
        }
        let Some(rights) = rights else {
            return Err(self.refuse_without_rights(tx, login, (found, fault)).await?);
        };
        let (member, epoch) = match found {
            None => self.add(&mut tx, login, (name?, &rights)).await?,
            Some(member) => self.update(&mut tx, login, member, &rights).await?,
        };
        Ok((tx, LoggedIn { member, epoch, rights }))
    }

    /// Ends all accesses of a member who is in no group of the table any more. Returns the refusal.
    async fn refuse_without_rights(
        &self,
        mut tx: WriteTx,
        login: &ProviderLogin,
        (found, fault): (Option<MemberRecord>, Option<String>),
    ) -> Result<ApiError, ApiError> {
        if let Some(member) = found {
            tx.revoke_member(&member.name, self.new_epoch()?).await?;
            let message = format!(
                "{} is in no group that may log in: all sessions, API keys, SSH keys and tokens of {0} ended",
                member.name
            );
            let event = login.event(&member.name, EventKind::SecurityMemberRevoked, message);
            tx.add_event(&event).await?;
            self.0.commit(tx).await?;
        }
        if let Some(fault) = fault {
            return Ok(ApiError::Forbidden(fault));
        }
        Ok(ApiError::Forbidden(format!(
            "{:?} of {} is in no group that may log in (web.oidc.members in the settings)",
            login.name.as_deref().unwrap_or(&login.origin.subject),
            login.origin.issuer
        )))
    }

    /// The name of a new member. That of a customer's member ends with the customer, as in invitations: so a person takes no
    /// name of the site or of another customer, and learns none. The inner error refuses a name of the site.
    async fn name_of(
        &self,
        login: &ProviderLogin,
        rights: Option<&MemberRow>,
    ) -> Result<Result<String, ApiError>, ApiError> {
        let claimed = login.name.clone().unwrap_or_default();
        let customer = rights.map(|rights| rights.customer.as_str()).unwrap_or_default();
        if !customer.is_empty() {
            let own = claimed.split('@').next().unwrap_or_default();
            return Ok(Ok(match own {
                "" => String::new(),
                own => format!("{own}@{customer}"),
            }));
        }
        let site = self.0.sites.current(&self.0.store).await?;
        let ending = claimed.rsplit_once('@').map(|(_, ending)| ending);
        let is_customers = |(_, site): (i64, Arc<Site>)| site_has(&site, ending);
        Ok(match site.is_some_and(is_customers) {
            true => Err(ApiError::Taken(vec![(
                "member".into(),
                format!("{claimed:?} ends with the name of a customer, and is kept for its members"),
            )])),
            false => Ok(claimed),
        })
    }

    async fn add(
        &self,
        tx: &mut WriteTx,
        login: &ProviderLogin,
        (name, rights): (String, &MemberRow),
    ) -> Result<(String, u64), ApiError> {
        if let Err(error) = ClientIdentity::member(&name, 0) {
            return Err(ApiError::precondition(
                "web.oidc.member_claim",
                format!("the provider gives no usable name for a member: {error}"),
                "web.oidc.member_claim in the settings names the claim",
            ));
        }
        call::note_target(&format!("members/{name}"));
        let epoch = self.new_epoch()?;
        let is_added = tx
            .add_member_of(&login.origin, &name, rights, epoch, clock::now())
            .await?;
        if !is_added {
            let fault = format!("{name:?} is a member with another login already");
            return Err(ApiError::Taken(vec![("member".into(), fault)]));
        }
        let message = format!(
            "{name} joined as {} by a login at {}",
            described(rights),
            login.origin.issuer
        );
        tx.add_event(&login.event(&name, EventKind::SecurityMemberJoined, message))
            .await?;
        Ok((name, epoch))
    }

    /// Gives a present member the rights of the table. Its accesses carry the customer, so they end if that changes.
    async fn update(
        &self,
        tx: &mut WriteTx,
        login: &ProviderLogin,
        member: MemberRecord,
        rights: &MemberRow,
    ) -> Result<(String, u64), ApiError> {
        if member.given == *rights {
            return Ok((member.name, member.epoch));
        }
        let mut epoch = member.epoch;
        if member.given.customer != rights.customer {
            epoch = self.new_epoch()?;
            tx.revoke_member(&member.name, epoch).await?;
        }
        tx.set_member_rights(&member.name, rights).await?;
        let message = format!(
            "the groups at {} make {} {}; it was {}",
            login.origin.issuer,
            member.name,
            described(rights),
            described(&member.given)
        );
        tx.add_event(&login.event(&member.name, EventKind::SecurityMemberRoleSet, message))
            .await?;
        Ok((member.name, epoch))
    }

    fn new_epoch(&self) -> Result<u64, ApiError> {
        new_epoch(self.0.rng.as_ref()).map_err(|error| ApiError::Internal(error.to_string()))
    }
}

/// Whether a site has a customer.
fn site_has(site: &Site, customer: Option<&str>) -> bool {
    customer.is_some_and(|customer| site.customer_named(customer).is_some())
}

/// A role, with its customer.
fn described(rights: &MemberRow) -> String {
    match rights.customer.as_str() {
        "" => rights.role.clone(),
        customer => format!("{} of {customer}", rights.role),
    }
}
