//! Each member may send one set of site files at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api_error::ApiError;
use crate::rights::Caller;

/// Members who are sending site files: each may send one set at a time.
#[derive(Debug, Default)]
pub struct SiteUploads(Arc<Mutex<HashSet<String>>>);

/// A member's turn to send site files.
#[derive(Debug)]
pub struct UploadSlot {
    actors: Arc<Mutex<HashSet<String>>>,
    actor: String,
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        actors.remove(&self.actor);
    }
}

impl SiteUploads {
    /// Begins the member's turn, which lasts until it is dropped.
    ///
    /// # Errors
    /// The member is sending files in another call.
    pub fn begin(&self, caller: &Caller) -> Result<UploadSlot, ApiError> {
        let actor = caller.actor();
        let mut actors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !actors.insert(actor.clone()) {
            return Err(ApiError::Busy {
                message: format!("{} is sending site files in another call", caller.name),
                hint: "wait until that call has ended".into(),
            });
        }
        let actors = self.0.clone();
        Ok(UploadSlot { actors, actor })
    }
}

#[cfg(test)]
mod tests {
    use rackwright_api::v1;

    use super::*;

    #[test]
    fn a_member_sends_one_set_of_files_at_a_time() {
        let caller = |name: &str| Caller {
            name: name.into(),
            role: v1::Role::Operator,
            scope: rackwright_store::Scope::Site,
            epoch: 1,
        };
        let uploads = SiteUploads::default();
        let turn = uploads.begin(&caller("ann")).unwrap();
        let refused = tonic::Status::from(uploads.begin(&caller("ann")).unwrap_err());
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        let _other = uploads.begin(&caller("bob")).unwrap();
        drop(turn);
        uploads.begin(&caller("ann")).unwrap();
    }
}
