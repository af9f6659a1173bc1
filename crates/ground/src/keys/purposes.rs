//! Purposes to which sealed secrets are bound, apart from those of one module.

use rackwright_lifecycle::OperationId;

/// The purpose to which a sealed factory password is bound.
#[must_use]
pub fn factory_password_purpose(id: &str) -> String {
    format!("factory-credential:{id}")
}

/// The purpose to which a discovery's sealed credentials are bound.
#[must_use]
pub fn secrets_purpose(id: &OperationId) -> String {
    format!("discovery:{id}")
}

/// The purpose to which a sealed login is bound.
#[must_use]
pub fn login_purpose(discovery: &OperationId, place: &str) -> String {
    format!("discovery-login:{discovery}:{place}")
}
