//! While the control plane is paused, only reading calls are answered; all others are refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service;

/// Prefix of the paths of this project's services: `/rackwright.v1.NodeService/ListNodes`.
const OURS: &str = "/rackwright.v1.";
/// Beginnings of the names of methods that only read.
const READS: &[&str] = &[
    "Explain",
    "Get",
    "List",
    "Plan",
    "Stream",
    "Sum",
    "Summarize",
    "Trace",
    "Wait",
    "Watch",
    "WhoAmI",
];
/// Other calls that are answered: reads with another name, calls that an operator needs to end the pause, and calls
/// that remove rights, because a restored database may contain members with rights that had ended.
const OTHERS: &[&str] = &[
    "AuthService/BeginDeviceLogin",
    "AuthService/DeleteMember",
    "AuthService/DeleteToken",
    "AuthService/FinishDeviceLogin",
    "AuthService/RedeemToken",
    "AuthService/RenewCredential",
    "AuthService/RevokeMember",
    "AuthService/SetMemberRole",
    "ConsoleService/ReadConsoleLog",
    "ControlService/ProveDatabase",
    "ControlService/ResumeControl",
    "SessionService/CreateLoginToken",
    "SessionService/DeleteApiKey",
    "SessionService/EndSession",
    "SessionService/OpenSession",
];

/// Whether a call is answered while the control plane is paused. Health checks and reflection are always answered.
pub(super) fn is_answered(path: &str) -> bool {
    let Some(call) = path.strip_prefix(OURS) else {
        return true;
    };
    is_read(call) || OTHERS.contains(&call)
}

/// Whether the method's name in `Service/Method` marks it as a read.
pub(super) fn is_read(call: &str) -> bool {
    let method = call.rsplit('/').next().unwrap_or(call);
    // Only whole words count: `GetNode`, not `Getter`.
    let rests = READS.iter().filter_map(|read| method.strip_prefix(read));
    rests
        .map(|rest| rest.chars().next())
        .any(|next| next.is_none_or(char::is_uppercase))
}

/// The services behind the pause check.
#[derive(Clone)]
pub struct Paused<S> {
    pub core: Arc<Core>,
    pub services: S,
}

impl<S, A> Service<Request<A>> for Paused<S>
where
    S: Service<Request<A>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.services.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if self.core.pause.is_on() && !is_answered(request.uri().path()) {
            let refused = ApiError::precondition(
                "control",
                "the control plane is paused: it answers reads and changes nothing",
                "`rackwright control resume` ends the pause",
            );
            let refused = tonic::Status::from(refused).into_http();
            return Box::pin(std::future::ready(Ok(refused)));
        }
        Box::pin(self.services.call(request))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// All calls that are answered during a pause, except get, list and explain.
    const ANSWERED: &[&str] = &[
        "AuditService/StreamAudit",
        "AuthService/BeginDeviceLogin",
        "AuthService/DeleteMember",
        "AuthService/DeleteToken",
        "AuthService/FinishDeviceLogin",
        "AuthService/RedeemToken",
        "AuthService/RenewCredential",
        "AuthService/RevokeMember",
        "AuthService/SetMemberRole",
        "AuthService/WhoAmI",
        "BootService/TraceBoot",
        "ClusterService/PlanCluster",
        "ClusterService/PlanClusterResize",
        "ConsoleService/ReadConsoleLog",
        "ControlService/ProveDatabase",
        "ControlService/ResumeControl",
        "EventService/StreamEvents",
        "MeteringService/SumUsage",
        "NodeService/SummarizeFleet",
        "NodeService/WatchNodes",
        "OperationService/WaitOperation",
        "SessionService/CreateLoginToken",
        "SessionService/DeleteApiKey",
        "SessionService/EndSession",
        "SessionService/OpenSession",
        "SiteService/PlanSite",
    ];

    #[test]
    fn a_pause_lets_through_what_reads_and_what_ends_it() {
        let set = FileDescriptorSet::decode(rackwright_api::DESCRIPTORS).unwrap();
        let mut answered = Vec::new();
        for file in set.file.iter().filter(|file| file.package() == "rackwright.v1") {
            for service in &file.service {
                let calls = service
                    .method
                    .iter()
                    .map(|m| format!("{}/{}", service.name(), m.name()));
                answered.extend(calls.filter(|call| is_answered(&format!("{OURS}{call}"))));
            }
        }
        answered.sort();
        let plain = ["/Get", "/List", "/Explain"];
        assert!(
            answered
                .iter()
                .filter(|call| plain.iter().any(|p| call.contains(p)))
                .count()
                > 20
        );
        answered.retain(|call| !plain.iter().any(|p| call.contains(p)));
        assert_eq!(answered, ANSWERED);
        assert!(is_answered("/grpc.health.v1.Health/Check"));
    }
}
