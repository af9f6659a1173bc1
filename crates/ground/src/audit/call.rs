//! Facts about the call that runs in a task.
//!
//! The layer around the services (`audited.rs` of `rackwright-grpc`) makes a [`Call`] and runs the call under it. The
//! services add further facts: the member's role, the operation that the call begins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_identity::AuditRecord;
use rackwright_lifecycle::{CustomerId, OperationId};

use super::request;
use crate::clock;

tokio::task_local! {
    static CURRENT: Arc<Call>;
}

/// Most bytes kept of a request. The audit reads the fields of the request from these bytes.
const REQUEST_MAX: usize = 16 << 10;

/// Which outcomes of a call are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// All outcomes, in the transaction of the call's change.
    WithChange,
    /// All outcomes, in a transaction of their own.
    Separately,
    /// Only refusals.
    IfRefused,
}

/// A call to the API, with the facts for its audit record.
#[derive(Debug)]
pub struct Call {
    /// Identifier that all records of the call share.
    pub id: String,
    /// `Service/Method`.
    pub method: String,
    /// Source address of the connection.
    pub address: String,
    /// The client's own name for itself; not verified.
    pub client: String,
    /// Trace id of the request.
    pub trace: String,
    /// The recorded outcomes.
    pub recorded: Recorded,
    request: Mutex<Vec<u8>>,
    details: Mutex<CallDetails>,
    is_written: AtomicBool,
}

#[derive(Debug, Default)]
struct CallDetails {
    caller: String,
    role: String,
    epoch: String,
    customer: String,
    target: String,
    operation: String,
}

impl Call {
    /// A call with only these facts so far.
    #[must_use]
    pub fn new(id: String, method: String, recorded: Recorded) -> Self {
        Self {
            id,
            method,
            address: String::new(),
            client: String::new(),
            trace: String::new(),
            recorded,
            request: Mutex::default(),
            details: Mutex::default(),
            is_written: AtomicBool::new(false),
        }
    }

    /// The call that runs in this task.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Runs `call`. Inside it, [`Call::current`] returns this call.
    pub async fn run<F: Future>(self: Arc<Self>, call: F) -> F::Output {
        CURRENT.scope(self, call).await
    }

    fn details(&self) -> MutexGuard<'_, CallDetails> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps further bytes of the request, up to a limit.
    pub fn keep_request(&self, bytes: &[u8]) {
        let mut kept = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let room = REQUEST_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Sets the caller from the certificate.
    pub fn set_caller(&self, caller: String, epoch: Option<u64>) {
        let mut details = self.details();
        details.caller = caller;
        details.epoch = epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
    }

    /// The caller; empty if it is unknown.
    #[must_use]
    pub fn caller(&self) -> String {
        self.details().caller.clone()
    }

    /// Whether the call changes something and its record is not stored yet.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.recorded == Recorded::WithChange && !self.is_written()
    }

    /// Whether a record of the call was stored.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.is_written.load(Ordering::SeqCst)
    }

    /// Notes that a record of the call was stored.
    pub fn mark_written(&self) {
        self.is_written.store(true, Ordering::SeqCst);
    }

    /// The record of the call for this outcome.
    #[must_use]
    pub fn record(&self, outcome: &str, message: &str) -> AuditRecord {
        let kept = self.request.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = request::shown(&self.method, &kept);
        let details = self.details();
        let target = match details.target.as_str() {
            "" => request::target(&request),
            target => target.to_owned(),
        };
        AuditRecord {
            time_us: clock::now().0,
            call: self.id.clone(),
            caller: details.caller.clone(),
            role: details.role.clone(),
            epoch: details.epoch.clone(),
            customer: details.customer.clone(),
            address: self.address.clone(),
            client: self.client.clone(),
            method: self.method.clone(),
            target,
            request: serde_json::Value::Object(request).to_string(),
            outcome: outcome.to_owned(),
            message: message.to_owned(),
            operation: details.operation.clone(),
            trace: self.trace.clone(),
            calls: 1,
            ..AuditRecord::default()
        }
    }
}

fn update_details(change: impl FnOnce(&mut CallDetails)) {
    if let Some(call) = Call::current() {
        change(&mut call.details());
    }
}

/// Notes the member of the current call, with role and customer.
pub fn note_member(name: &str, epoch: u64, role: &str, customer: &CustomerId) {
    update_details(|details| {
        details.caller = format!("members/{name}");
        details.epoch = epoch.to_string();
        details.role = role.to_owned();
        details.customer = customer.to_string();
    });
}

/// Notes the agent of the current call as its caller.
pub fn note_agent(name: &str) {
    update_details(|details| details.caller = format!("agents/{name}"));
}

/// Notes the resource that the current call is about.
pub fn note_target(name: &str) {
    update_details(|details| details.target = name.to_owned());
}

/// Notes the operation that the current call begins.
pub fn note_operation(id: &OperationId) {
    update_details(|details| details.operation = format!("operations/{id}"));
}
