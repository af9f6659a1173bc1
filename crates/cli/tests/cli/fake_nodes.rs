//! The fake's nodes.

use rackwright_api::v1::node_service_server::NodeService;
use rackwright_api::v1::*;
use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service, Stream, key};

impl Service {
    fn node(&self, name: &str) -> Result<Node, Status> {
        let node = self.state().nodes.get(name).cloned();
        node.ok_or_else(|| Status::not_found(format!("node {:?} does not exist", name.trim_start_matches("nodes/"))))
    }

    pub fn on_node(
        &self,
        method: &'static str,
        request: &Request<impl Sized>,
        mutation: &Option<Mutation>,
        kind: &str,
        name: &str,
    ) -> Answer<Operation> {
        self.enter(method, request, &key(mutation))?;
        self.node(name)?;
        self.start(method, &key(mutation), kind, name)
    }

    fn set_state(&self, name: &str, state: NodeState, reason: &str) -> Answer<Node> {
        let mut node = self.node(name)?;
        let status = node.status.get_or_insert_default();
        status.state = state as i32;
        status.reason = reason.to_owned();
        self.state().nodes.insert(name.to_owned(), node.clone());
        Ok(Response::new(node))
    }
}

/// Whether a node matches a filter of terms FIELD = VALUE. Other terms are ignored.
fn matches(node: &Node, filter: &str) -> bool {
    filter.split(" AND ").all(|clause| {
        let terms = clause.trim_matches(['(', ')']).split(" OR ");
        let mut terms = terms.filter_map(|term| term.split_once(" = ")).peekable();
        terms.peek().is_none() || terms.any(|(field, value)| has(node, field, value.trim_matches('"')))
    })
}

fn has(node: &Node, field: &str, value: &str) -> bool {
    let (spec, status, metadata) = (node.spec.as_ref(), node.status.as_ref(), node.metadata.as_ref());
    match field {
        "state" => {
            let state = NodeState::from_str_name(&format!("NODE_STATE_{}", value.to_uppercase()));
            status.map(|status| status.state) == state.map(|state| state as i32)
        }
        "sku" => spec.is_some_and(|spec| spec.sku == value),
        "name" => node.name.trim_start_matches("nodes/") == value,
        label => {
            let key = label.trim_start_matches("labels.");
            metadata
                .and_then(|metadata| metadata.labels.get(key))
                .is_some_and(|label| label == value)
        }
    }
}

#[tonic::async_trait]
impl NodeService for Service {
    type WatchNodesStream = Stream<WatchNodesResponse>;

    async fn enroll_node(&self, request: Request<EnrollNodeRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("EnrollNode", &request, &mutation)?;
        let request = request.into_inner();
        let target = format!("nodes/{}", request.node_id);
        self.state().enrolled.push(request);
        self.start("EnrollNode", &mutation, "enroll", &target)
    }

    async fn batch_enroll_nodes(&self, request: Request<BatchEnrollNodesRequest>) -> Answer<BatchEnrollNodesResponse> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("BatchEnrollNodes", &request, &mutation)?;
        let mut operations = Vec::new();
        for (index, node) in request.into_inner().requests.into_iter().enumerate() {
            let target = format!("nodes/{}", node.node_id);
            self.state().enrolled.push(node);
            let started = self.start("BatchEnrollNodes", &format!("{mutation}#{index}"), "enroll", &target)?;
            operations.push(started.into_inner());
        }
        Ok(Response::new(BatchEnrollNodesResponse { operations }))
    }

    async fn get_node(&self, request: Request<GetNodeRequest>) -> Answer<Node> {
        self.enter("GetNode", &request, "")?;
        self.node(&request.into_inner().name).map(Response::new)
    }

    async fn summarize_fleet(&self, request: Request<SummarizeFleetRequest>) -> Answer<FleetSummary> {
        self.enter("SummarizeFleet", &request, "")?;
        let state = self.state();
        let mut states: Vec<FleetCount> = Vec::new();
        for node in state.nodes.values() {
            let of_node = node.status.as_ref().map(|status| status.state()).unwrap_or_default();
            let value = of_node.as_str_name()["NODE_STATE_".len()..].to_lowercase();
            match states.iter_mut().find(|count| count.value == value) {
                Some(count) => count.nodes += 1,
                None => states.push(FleetCount {
                    value,
                    nodes: 1,
                    ..FleetCount::default()
                }),
            }
        }
        Ok(Response::new(FleetSummary {
            nodes: state.nodes.len() as i64,
            states,
            ..FleetSummary::default()
        }))
    }

    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Answer<ListNodesResponse> {
        self.enter("ListNodes", &request, "")?;
        let request = request.into_inner();
        let state = self.state();
        let mut nodes: Vec<Node> = state
            .nodes
            .values()
            .filter(|node| matches(node, &request.filter))
            .filter(|node| node.name > request.page_token)
            .cloned()
            .collect();
        let size = if state.page_size == 0 {
            request.page_size as usize
        } else {
            state.page_size
        };
        let more = nodes.len() > size;
        nodes.truncate(size);
        let next_page_token = if more {
            nodes[size - 1].name.clone()
        } else {
            String::new()
        };
        Ok(Response::new(ListNodesResponse { nodes, next_page_token }))
    }

    async fn update_node(&self, request: Request<UpdateNodeRequest>) -> Answer<Node> {
        self.enter("UpdateNode", &request, &key(&request.get_ref().mutation))?;
        let request = request.into_inner();
        let changed = request.node.clone().unwrap_or_default();
        let mut node = self.node(&changed.name)?;
        let version = request.mutation.clone().unwrap_or_default().resource_version;
        let metadata = node.metadata.get_or_insert_default();
        if !version.is_empty() && version != metadata.resource_version {
            return Err(Status::aborted(format!("{} has another version by now", changed.name)));
        }
        if request
            .update_mask
            .iter()
            .any(|mask| mask.paths.contains(&"metadata.labels".to_owned()))
        {
            metadata.labels = changed.metadata.unwrap_or_default().labels;
        }
        let mut state = self.state();
        state.updates.push(request);
        state.nodes.insert(changed.name, node.clone());
        Ok(Response::new(node))
    }

    async fn delete_node(&self, request: Request<DeleteNodeRequest>) -> Answer<()> {
        self.enter("DeleteNode", &request, &key(&request.get_ref().mutation))?;
        let name = request.into_inner().name;
        self.node(&name)?;
        self.state().nodes.remove(&name);
        Ok(Response::new(()))
    }

    async fn watch_nodes(&self, request: Request<WatchNodesRequest>) -> Answer<Self::WatchNodesStream> {
        self.enter("WatchNodes", &request, "")?;
        let mut state = self.state();
        let mut messages: Vec<_> = state
            .nodes
            .values()
            .map(|node| WatchNodesResponse {
                node: Some(node.clone()),
                ..Default::default()
            })
            .collect();
        messages.push(WatchNodesResponse {
            synced: true,
            ..Default::default()
        });
        let watches = state.watches.len();
        let scripted = state.watches.pop_front().unwrap_or_default();
        // Sent changes have happened: the next caller sees them as the current state.
        for node in scripted.iter().filter_map(|message| message.node.clone()) {
            state.nodes.insert(node.name.clone(), node);
        }
        messages.extend(scripted);
        // Every watch except the last breaks, so that the program must reconnect.
        let end: Stream<WatchNodesResponse> = if watches > 1 {
            Box::pin(tokio_stream::once(Err(Status::unavailable("the stream broke"))))
        } else {
            Box::pin(tokio_stream::pending())
        };
        Ok(Response::new(Box::pin(
            tokio_stream::iter(messages.into_iter().map(Ok)).chain(end),
        )))
    }

    async fn set_node_power(&self, request: Request<SetNodePowerRequest>) -> Answer<Operation> {
        let SetNodePowerRequest { name, mutation, .. } = request.get_ref().clone();
        self.on_node("SetNodePower", &request, &mutation, "power", &name)
    }

    async fn deploy_node(&self, request: Request<DeployNodeRequest>) -> Answer<Operation> {
        let DeployNodeRequest {
            name,
            mutation,
            deployment,
        } = request.get_ref().clone();
        let answer = self.on_node("DeployNode", &request, &mutation, "deploy", &name)?;
        self.state().deployments.push((name, deployment.unwrap_or_default()));
        Ok(answer)
    }

    async fn reimage_node(&self, request: Request<ReimageNodeRequest>) -> Answer<Operation> {
        let ReimageNodeRequest {
            name,
            mutation,
            deployment,
        } = request.get_ref().clone();
        let answer = self.on_node("ReimageNode", &request, &mutation, "reimage", &name)?;
        self.state().deployments.push((name, deployment.unwrap_or_default()));
        Ok(answer)
    }

    async fn release_node(&self, request: Request<ReleaseNodeRequest>) -> Answer<Operation> {
        let ReleaseNodeRequest { name, mutation } = request.get_ref().clone();
        self.on_node("ReleaseNode", &request, &mutation, "release", &name)
    }

    async fn hold_node(&self, request: Request<HoldNodeRequest>) -> Answer<Node> {
        self.enter("HoldNode", &request, &key(&request.get_ref().mutation))?;
        let request = request.into_inner();
        let former = self.node(&request.name)?;
        self.set_state(&request.name, NodeState::Maintenance, &request.reason)?;
        Ok(Response::new(former))
    }

    async fn resume_node(&self, request: Request<ResumeNodeRequest>) -> Answer<Operation> {
        let ResumeNodeRequest { name, mutation, .. } = request.get_ref().clone();
        self.on_node("ResumeNode", &request, &mutation, "resume", &name)
    }

    async fn quarantine_node(&self, request: Request<QuarantineNodeRequest>) -> Answer<Node> {
        self.enter("QuarantineNode", &request, &key(&request.get_ref().mutation))?;
        let request = request.into_inner();
        self.set_state(&request.name, NodeState::Quarantined, &request.reason)
    }

    async fn readmit_node(&self, request: Request<ReadmitNodeRequest>) -> Answer<Operation> {
        let ReadmitNodeRequest { name, mutation, .. } = request.get_ref().clone();
        self.on_node("ReadmitNode", &request, &mutation, "readmit", &name)
    }

    async fn retry_node(&self, request: Request<RetryNodeRequest>) -> Answer<Operation> {
        let RetryNodeRequest { name, mutation } = request.get_ref().clone();
        self.on_node("RetryNode", &request, &mutation, "retry", &name)
    }

    async fn believe_node(&self, request: Request<BelieveNodeRequest>) -> Answer<Node> {
        self.enter("BelieveNode", &request, &key(&request.get_ref().mutation))?;
        let name = request.into_inner().name;
        let mut node = self.node(&name)?;
        node.status.get_or_insert_default().doubt = String::new();
        self.state().nodes.insert(name, node.clone());
        Ok(Response::new(node))
    }

    async fn explain_node(&self, request: Request<ExplainNodeRequest>) -> Answer<Explanation> {
        self.enter("ExplainNode", &request, "")?;
        let name = request.into_inner().name;
        let explanation = self.state().explanations.get(&name).cloned();
        explanation
            .map(Response::new)
            .ok_or_else(|| Status::not_found("no such node"))
    }

    async fn list_reports(&self, request: Request<ListReportsRequest>) -> Answer<ListReportsResponse> {
        self.enter("ListReports", &request, "")?;
        Ok(Response::new(ListReportsResponse {
            reports: self.state().reports.clone(),
            ..Default::default()
        }))
    }

    async fn list_erase_certificates(
        &self,
        request: Request<ListEraseCertificatesRequest>,
    ) -> Answer<ListEraseCertificatesResponse> {
        self.enter("ListEraseCertificates", &request, "")?;
        let erase_certificates = self.state().certificates.clone();
        Ok(Response::new(ListEraseCertificatesResponse {
            erase_certificates,
            ..Default::default()
        }))
    }

    async fn list_erase_chain(&self, request: Request<ListEraseChainRequest>) -> Answer<ListEraseChainResponse> {
        self.enter("ListEraseChain", &request, "")?;
        Ok(Response::new(ListEraseChainResponse::default()))
    }
}
