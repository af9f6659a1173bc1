//! The fake's site and clusters.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;

use rackwright_api::v1::cluster_service_server::ClusterService;
use rackwright_api::v1::site_service_server::SiteService;
use rackwright_api::v1::*;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::fake::{Answer, Service, key};

/// The fake's data about clusters, and the requests it received.
#[derive(Default)]
pub struct Clusters {
    pub site: Option<Site>,
    /// The answer to every `PlanSite`.
    pub plan: PlanSiteResponse,
    pub sent: Vec<Vec<SiteFile>>,
    pub applied: Vec<Applied>,
    /// Each `GetCluster` returns the next form of the cluster; the last form is repeated.
    pub known: BTreeMap<String, VecDeque<Cluster>>,
    /// The answers to `PlanCluster`, by the cluster's id.
    pub plans: HashMap<String, ClusterPlan>,
    pub created: Vec<CreateClusterRequest>,
    pub replaced: Vec<ReplaceClusterNodeRequest>,
    /// The answer to every `PlanClusterResize`.
    pub resize: ClusterResizePlan,
    pub resized: Vec<ResizeClusterRequest>,
    pub reimaged: Vec<ReimageClusterRequest>,
    pub rollouts: Vec<Option<Rollout>>,
    pub pack: HandoverPack,
    pub filters: Vec<String>,
}

impl Service {
    fn cluster(&self, name: &str) -> Result<Cluster, Status> {
        let mut state = self.state();
        let forms = state.clusters.known.get_mut(name);
        let form = forms.and_then(|forms| {
            if forms.len() > 1 {
                forms.pop_front()
            } else {
                forms.front().cloned()
            }
        });
        form.ok_or_else(|| {
            Status::not_found(format!(
                "cluster {:?} does not exist",
                name.trim_start_matches("clusters/")
            ))
        })
    }
}

/// Files that became the site.
pub struct Applied {
    pub mutation: Mutation,
    pub files: Vec<SiteFile>,
}

/// Adds a part to the received files.
fn take(files: &mut Vec<SiteFile>, part: Option<SiteFilePart>) {
    let Some(SiteFilePart { name, data }) = part else {
        return;
    };
    let text = String::from_utf8(data).expect("the tests' files are ASCII");
    match files.last_mut() {
        Some(file) if name.is_empty() => file.text.push_str(&text),
        _ => files.push(SiteFile { name, text }),
    }
}

#[tonic::async_trait]
impl SiteService for Service {
    type GetSiteStream = Pin<Box<dyn Stream<Item = Result<GetSiteResponse, Status>> + Send>>;

    async fn plan_site(&self, request: Request<Streaming<PlanSiteRequest>>) -> Answer<PlanSiteResponse> {
        self.enter("PlanSite", &request, "")?;
        let mut stream = request.into_inner();
        let mut files = Vec::new();
        while let Some(message) = stream.message().await? {
            take(&mut files, message.part);
        }
        let mut state = self.state();
        state.clusters.sent.push(files);
        Ok(Response::new(state.clusters.plan.clone()))
    }

    async fn apply_site(&self, request: Request<Streaming<ApplySiteRequest>>) -> Answer<Site> {
        let (metadata, extensions, mut stream) = request.into_parts();
        let first = stream.message().await?.unwrap_or_default();
        let head = Request::from_parts(metadata, extensions, ());
        self.enter("ApplySite", &head, &key(&first.mutation))?;
        let mut files = Vec::new();
        take(&mut files, first.part);
        while let Some(message) = stream.message().await? {
            assert_eq!(message.mutation, None);
            take(&mut files, message.part);
        }
        let mut state = self.state();
        let mutation = first.mutation.unwrap_or_default();
        state.clusters.applied.push(Applied { mutation, files });
        let site = state.clusters.site.clone().unwrap_or_default();
        Ok(Response::new(Site {
            files: Vec::new(),
            ..site
        }))
    }

    async fn list_fabric_faults(&self, request: Request<ListFabricFaultsRequest>) -> Answer<ListFabricFaultsResponse> {
        self.enter("ListFabricFaults", &request, "")?;
        Ok(Response::new(ListFabricFaultsResponse::default()))
    }

    async fn get_topology(&self, _request: Request<GetTopologyRequest>) -> Answer<GetTopologyResponse> {
        Err(Status::unimplemented("the CLI draws no pictures"))
    }

    async fn get_site(&self, request: Request<GetSiteRequest>) -> Answer<Self::GetSiteStream> {
        self.enter("GetSite", &request, "")?;
        let site = self.state().clusters.site.clone();
        let mut site = site.ok_or_else(|| Status::failed_precondition("no site was applied"))?;
        let mut messages = Vec::new();
        for SiteFile { name, text } in std::mem::take(&mut site.files) {
            // Cut at an arbitrary place.
            let (head, tail) = text.as_bytes().split_at(text.len() / 2);
            for (name, data) in [(name, head), (String::new(), tail)] {
                let data = data.to_vec();
                messages.push(get_site_response::Message::Part(SiteFilePart { name, data }));
            }
        }
        messages.insert(0, get_site_response::Message::Site(site));
        let message = |message| Ok(GetSiteResponse { message: Some(message) });
        Ok(Response::new(Box::pin(tokio_stream::iter(
            messages.into_iter().map(message),
        ))))
    }
}

#[tonic::async_trait]
impl ClusterService for Service {
    async fn plan_cluster(&self, request: Request<PlanClusterRequest>) -> Answer<ClusterPlan> {
        self.enter("PlanCluster", &request, "")?;
        let id = request.into_inner().cluster_id;
        let plan = self.state().clusters.plans.get(&id).cloned();
        plan.map(Response::new)
            .ok_or_else(|| Status::invalid_argument("spec.customer: the site has no customer \"nobody\""))
    }

    async fn create_cluster(&self, request: Request<CreateClusterRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("CreateCluster", &request, &mutation)?;
        let request = request.into_inner();
        let target = format!("clusters/{}", request.cluster_id);
        self.state().clusters.created.push(request);
        self.start("CreateCluster", &mutation, "create-cluster", &target)
    }

    async fn get_cluster(&self, request: Request<GetClusterRequest>) -> Answer<Cluster> {
        self.enter("GetCluster", &request, "")?;
        self.cluster(&request.into_inner().name).map(Response::new)
    }

    async fn list_clusters(&self, request: Request<ListClustersRequest>) -> Answer<ListClustersResponse> {
        self.enter("ListClusters", &request, "")?;
        let request = request.into_inner();
        let mut state = self.state();
        state.clusters.filters.push(request.filter);
        // One cluster per page: the client must read further pages.
        let mut after = state
            .clusters
            .known
            .iter()
            .filter(|(name, _)| **name > request.page_token);
        let cluster = after.next().and_then(|(_, forms)| forms.front().cloned());
        let next_page_token = match (&cluster, after.next()) {
            (Some(cluster), Some(_)) => cluster.name.clone(),
            _ => String::new(),
        };
        let bare = cluster.map(|mut cluster| {
            let status = cluster.status.get_or_insert_default();
            status.members.clear();
            status.history.clear();
            status.replaced.clear();
            cluster
        });
        Ok(Response::new(ListClustersResponse {
            clusters: bare.into_iter().collect(),
            next_page_token,
        }))
    }

    async fn plan_cluster_resize(&self, request: Request<PlanClusterResizeRequest>) -> Answer<ClusterResizePlan> {
        self.enter("PlanClusterResize", &request, "")?;
        self.cluster(&request.get_ref().name)?;
        Ok(Response::new(self.state().clusters.resize.clone()))
    }

    async fn resize_cluster(&self, request: Request<ResizeClusterRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("ResizeCluster", &request, &mutation)?;
        let request = request.into_inner();
        let target = request.name.clone();
        self.state().clusters.resized.push(request);
        self.start("ResizeCluster", &mutation, "resize-cluster", &target)
    }

    async fn reimage_cluster(&self, request: Request<ReimageClusterRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("ReimageCluster", &request, &mutation)?;
        let request = request.into_inner();
        let target = request.name.clone();
        self.state().clusters.reimaged.push(request);
        self.start("ReimageCluster", &mutation, "reimage-cluster", &target)
    }

    async fn resume_cluster_reimage(&self, request: Request<ResumeClusterReimageRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("ResumeClusterReimage", &request, &mutation)?;
        let request = request.into_inner();
        self.state().clusters.rollouts.push(request.rollout);
        self.start("ResumeClusterReimage", &mutation, "reimage-cluster", &request.name)
    }

    async fn roll_back_cluster(&self, request: Request<RollBackClusterRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("RollBackCluster", &request, &mutation)?;
        let request = request.into_inner();
        self.state().clusters.rollouts.push(request.rollout);
        self.start("RollBackCluster", &mutation, "roll-back-cluster", &request.name)
    }

    async fn retry_cluster(&self, request: Request<RetryClusterRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("RetryCluster", &request, &mutation)?;
        let request = request.into_inner();
        self.start("RetryCluster", &mutation, "retry-cluster", &request.name)
    }

    async fn replace_cluster_node(&self, request: Request<ReplaceClusterNodeRequest>) -> Answer<Operation> {
        let mutation = key(&request.get_ref().mutation);
        self.enter("ReplaceClusterNode", &request, &mutation)?;
        let request = request.into_inner();
        self.cluster(&request.name)?;
        let target = request.name.clone();
        self.state().clusters.replaced.push(request);
        self.start("ReplaceClusterNode", &mutation, "replace-node", &target)
    }

    async fn set_cluster_lease(&self, request: Request<SetClusterLeaseRequest>) -> Answer<Cluster> {
        self.enter("SetClusterLease", &request, &key(&request.get_ref().mutation))?;
        let request = request.into_inner();
        let mut cluster = self.cluster(&request.name)?;
        cluster.spec.get_or_insert_default().lease_end = request.lease_end;
        Ok(Response::new(cluster))
    }

    async fn release_cluster(&self, request: Request<ReleaseClusterRequest>) -> Answer<Operation> {
        let ReleaseClusterRequest { name, mutation } = request.get_ref().clone();
        self.enter("ReleaseCluster", &request, &key(&mutation))?;
        self.cluster(&name)?;
        self.start("ReleaseCluster", &key(&mutation), "release-cluster", &name)
    }

    async fn delete_cluster(&self, request: Request<DeleteClusterRequest>) -> Answer<()> {
        self.enter("DeleteCluster", &request, &key(&request.get_ref().mutation))?;
        let name = request.into_inner().name;
        self.cluster(&name)?;
        self.state().clusters.known.remove(&name);
        Ok(Response::new(()))
    }

    async fn get_handover_pack(&self, request: Request<GetHandoverPackRequest>) -> Answer<HandoverPack> {
        self.enter("GetHandoverPack", &request, "")?;
        self.cluster(&request.into_inner().name)?;
        Ok(Response::new(self.state().clusters.pack.clone()))
    }

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Answer<Capacity> {
        self.enter("GetCapacity", &request, "")?;
        let customer = request.into_inner().customer;
        Ok(Response::new(Capacity {
            customer,
            ..Capacity::default()
        }))
    }
}
