//! `CredentialService`: passwords of BMCs are write-only.

use std::sync::Arc;

use rackwright_api::v1;
use rackwright_api::v1::credential_service_server::CredentialService;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::bmc;
use rackwright_ground::core::Core;
use rackwright_ground::keys::purposes::factory_password_purpose;
use rackwright_lifecycle::{EventKind, OperationKind};
use rackwright_nodes::credentials::forget_refusals;
use rackwright_store::{FactoryCredential, NodeRecord};
use secrecy::SecretString;
use tonic::{Request, Response, Status};

use super::call::{MutatingCall, SideChanges};
use super::enrolment::{self, Faults};
use super::{caller, convert, names};

/// The collection's name.
const COLLECTION: &str = "factoryCredentials";
/// Most entries: more would amount to guessing.
const MOST: i64 = 100;
/// Default order of an entry.
const ORDER_DEFAULT: i32 = 100;
const ORDER_MAX: i32 = 1_000_000;
/// Longest pattern and name, in bytes.
const PATTERN_MAX: usize = 128;
const NAME_MAX: usize = 256;

/// Implements `CredentialService`.
#[derive(Debug, Clone)]
pub struct Credentials(pub Arc<Core>);

type Answer<T> = Result<Response<T>, Status>;

fn shown(one: &FactoryCredential) -> v1::FactoryCredential {
    v1::FactoryCredential {
        name: format!("{COLLECTION}/{}", one.id),
        pattern: one.pattern.clone(),
        username: one.username.clone(),
        order: i32::try_from(one.place).unwrap_or(i32::MAX),
        created_by: one.created_by.clone(),
        create_time: convert::time(one.created_at),
    }
}

fn faults(request: &v1::AddFactoryCredentialRequest) -> Faults {
    let mut faults = Faults::new();
    let is_text = |text: &str, most: usize| text.len() <= most && !text.chars().any(char::is_control);
    if !is_text(&request.pattern, PATTERN_MAX) {
        faults.push((
            "pattern".into(),
            format!("must have at most {PATTERN_MAX} bytes of text"),
        ));
    }
    if request.username.is_empty() || !is_text(&request.username, NAME_MAX) {
        faults.push(("username".into(), format!("must have 1 to {NAME_MAX} bytes of text")));
    }
    let password = enrolment::password_faults(&request.password);
    faults.extend(password.into_iter().map(|(_, fault)| ("password".to_owned(), fault)));
    if !(0..=ORDER_MAX).contains(&request.order) {
        faults.push(("order".into(), format!("must be 0 to {ORDER_MAX}")));
    }
    faults
}

#[tonic::async_trait]
impl CredentialService for Credentials {
    async fn add_factory_credential(
        &self,
        request: Request<v1::AddFactoryCredentialRequest>,
    ) -> Answer<v1::FactoryCredential> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "AddFactoryCredential",
            request.mutation.as_ref(),
            &request,
        )?;
        enrolment::none(faults(&request))?;
        let id = self.0.new_id();
        let password = SecretString::from(request.password.clone());
        let sealed = self.0.keys.sealer.seal(&password, &factory_password_purpose(&id));
        let pattern = match request.pattern.as_str() {
            "" => "*".to_owned(),
            pattern => pattern.to_owned(),
        };
        let order = if request.order == 0 {
            ORDER_DEFAULT
        } else {
            request.order
        };
        let one = FactoryCredential {
            password: sealed.map_err(|e| ApiError::Internal(e.to_string()))?,
            id,
            pattern,
            username: request.username,
            place: i64::from(order),
            created_by: caller.name.clone(),
            created_at: call.now(),
        };
        let mut tx = match call.begin().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        if tx.count_factory_credentials().await.map_err(ApiError::from)? >= MOST {
            let hint = "`rackwright bmc credentials remove` removes a password";
            let message = format!("the list is full: {MOST} passwords, and each is a login that a BMC may refuse");
            return Err(ApiError::precondition(COLLECTION, message, hint).into());
        }
        tx.add_factory_credential(&one).await.map_err(ApiError::from)?;
        let name = format!("{COLLECTION}/{}", one.id);
        let message = format!(
            "{} added the factory password of {} on {}",
            caller.name, one.username, one.pattern
        );
        tx.add_event(&call.event(EventKind::BmcCredentialAdded, &name, message))
            .await
            .map_err(ApiError::from)?;
        Ok(Response::new(call.end(tx, shown(&one)).await?))
    }

    async fn list_factory_credentials(
        &self,
        request: Request<v1::ListFactoryCredentialsRequest>,
    ) -> Answer<v1::ListFactoryCredentialsResponse> {
        caller::member(&self.0, &request).await?;
        let all = self.0.store.factory_credentials().await.map_err(ApiError::from)?;
        Ok(Response::new(v1::ListFactoryCredentialsResponse {
            credentials: all.iter().map(shown).collect(),
        }))
    }

    async fn remove_factory_credential(&self, request: Request<v1::RemoveFactoryCredentialRequest>) -> Answer<()> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let mutation = request.mutation.as_ref();
        let call = MutatingCall::new(&self.0, &caller, "RemoveFactoryCredential", mutation, &request)?;
        let id = names::id_of("name", &request.name, COLLECTION)?;
        let mut tx = match call.begin::<()>().await? {
            Ok(tx) => tx,
            Err(former) => return Ok(Response::new(former)),
        };
        if !tx.remove_factory_credential(id).await.map_err(ApiError::from)? {
            return Err(ApiError::NotFound {
                kind: "factory credential",
                name: request.name.clone(),
            }
            .into());
        }
        let message = format!("{} removed a factory password", caller.name);
        tx.add_event(&call.event(EventKind::BmcCredentialRemoved, &request.name, message))
            .await
            .map_err(ApiError::from)?;
        call.end(tx, ()).await?;
        Ok(Response::new(()))
    }

    async fn rotate_bmc_password(&self, request: Request<v1::RotateBmcPasswordRequest>) -> Answer<v1::Operation> {
        let caller = caller::operator(&self.0, &request).await?;
        let request = request.into_inner();
        let call = MutatingCall::new(
            &self.0,
            &caller,
            "RotateBmcPassword",
            request.mutation.as_ref(),
            &request,
        )?;
        let id = &names::node_id("name", &request.name)?;
        let now = call.now();
        let change = |record: &mut NodeRecord| {
            if bmc::is_ipmi(&record.spec) {
                let message = "Rackwright changes no passwords over IPMI";
                let hint = "change the password at the BMC, then set it with `rackwright node update`";
                return Err(ApiError::precondition(format!("nodes/{id}"), message, hint));
            }
            forget_refusals(&mut record.spec);
            record.spec.account.asked_at = Some(now);
            Ok(SideChanges::default())
        };
        Ok(Response::new(
            call.node_operation(id, OperationKind::BmcPassword, change).await?,
        ))
    }
}
