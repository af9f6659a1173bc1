//! Streams: changes of nodes, and events. Both read the event log, so no change between the first look and the first
//! wait is lost, and a slow reader delays no other stream.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::{ChangeTicks, Core};
use rackwright_lifecycle::NodeId;
use rackwright_store::{EventRow, Filter, Scope, StoreError};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{convert, customer_view};

/// Messages that may wait for a slow reader.
const QUEUE: usize = 64;
/// Rows read per page.
const PAGE: i64 = 500;
const ROWS: usize = PAGE as usize;
/// Shortest interval between two looks of one stream; changes in between are read together.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) type Sender<T> = mpsc::Sender<Result<T, Status>>;

pub(super) fn spawn<T, F>(
    core: Arc<Core>,
    work: impl FnOnce(Arc<Core>, Sender<T>) -> F,
) -> impl Stream<Item = Result<T, Status>>
where
    T: Send + 'static,
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(QUEUE);
    let stop = core.stop.clone();
    let work = work(core, sender.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {
                let _ = sender.send(Err(Status::unavailable("the server is stopping; connect again"))).await;
            }
            result = work => {
                if let Err(error) = result {
                    let _ = sender.send(Err(error.into())).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// All matching nodes, then their changes.
pub fn nodes(
    core: Arc<Core>,
    scope: Scope,
    filter: Filter,
) -> impl Stream<Item = Result<v1::WatchNodesResponse, Status>> {
    spawn(core, move |core, sender| watch_nodes(core, scope, filter, sender))
}

async fn watch_nodes(
    core: Arc<Core>,
    scope: Scope,
    filter: Filter,
    sender: Sender<v1::WatchNodesResponse>,
) -> Result<(), ApiError> {
    let mut change_ticks = core.change_ticks(PAUSE);
    let (_, mut position) = core.store.event_range().await?;
    let mut shown = HashSet::new();
    let mut after = String::new();
    loop {
        let page = core.store.nodes(&scope, &filter, &after, PAGE).await?;
        let Some(last) = page.last() else { break };
        last.id.as_str().clone_into(&mut after);
        for record in &page {
            shown.insert(record.id.clone());
            let node = Some(customer_view::node(
                &scope,
                convert::node(&core, record, None, clock::now()),
            ));
            if sender
                .send(Ok(v1::WatchNodesResponse {
                    node,
                    ..Default::default()
                }))
                .await
                .is_err()
            {
                return Ok(());
            }
        }
    }
    if sender
        .send(Ok(v1::WatchNodesResponse {
            synced: true,
            ..Default::default()
        }))
        .await
        .is_err()
    {
        return Ok(());
    }
    loop {
        // Reads the events of the whole site for their node ids: events about a node that leaves a customer are not in
        // the customer's view.
        let events = core.store.events(&Scope::Site, position, "", PAGE).await?;
        let is_full = events.len() == ROWS;
        if let Some(last) = events.last() {
            position = last.position;
            let changed: BTreeSet<&str> = events.iter().filter_map(|e| e.target.strip_prefix("nodes/")).collect();
            for id in changed {
                let Some(message) = changed_node(&core, &scope, &filter, &NodeId::stored(id), &mut shown).await? else {
                    continue;
                };
                if sender.send(Ok(message)).await.is_err() {
                    return Ok(());
                }
            }
            if is_full {
                continue;
            }
        }
        if !wait_for_tick(&mut change_ticks, &sender).await {
            return Ok(());
        }
    }
}

/// Waits for the next look. Returns false if the reader is gone or no further change can come.
async fn wait_for_tick<T>(change_ticks: &mut ChangeTicks, sender: &Sender<T>) -> bool {
    tokio::select! {
        is_open = change_ticks.next() => is_open,
        () = sender.closed() => false,
    }
}

async fn changed_node(
    core: &Core,
    scope: &Scope,
    filter: &Filter,
    id: &NodeId,
    shown: &mut HashSet<NodeId>,
) -> Result<Option<v1::WatchNodesResponse>, StoreError> {
    let mut narrowed = filter.clone();
    narrowed.push(rackwright_store::Term {
        field: "name".into(),
        value: id.to_string(),
        negated: false,
    });
    let found = core.store.nodes(scope, &narrowed, "", 1).await?;
    if let Some(record) = found.first() {
        shown.insert(id.to_owned());
        let node = Some(customer_view::node(
            scope,
            convert::node(core, record, None, clock::now()),
        ));
        return Ok(Some(v1::WatchNodesResponse {
            node,
            ..Default::default()
        }));
    }
    if !shown.remove(id) {
        return Ok(None);
    }
    // The node is gone or does not match any more: in both cases the watcher removes it.
    let node = v1::Node {
        name: format!("nodes/{id}"),
        ..v1::Node::default()
    };
    Ok(Some(v1::WatchNodesResponse {
        node: Some(node),
        deleted: true,
        synced: false,
    }))
}

/// Events after a position, then new events.
pub fn events(
    core: Arc<Core>,
    scope: Scope,
    after: i64,
    last: Option<i64>,
    target: String,
) -> impl Stream<Item = Result<v1::Event, Status>> {
    spawn(core, move |core, sender| {
        follow_events(core, scope, after, last, target, sender)
    })
}

async fn follow_events(
    core: Arc<Core>,
    scope: Scope,
    mut position: i64,
    last: Option<i64>,
    target: String,
    sender: Sender<v1::Event>,
) -> Result<(), ApiError> {
    let mut change_ticks = core.change_ticks(PAUSE);
    loop {
        // With a filtered view, all events up to this position count as read, so later looks skip them.
        let looked_at = match &scope {
            Scope::Site => position,
            Scope::Customer(_) => core.store.event_range().await?.1,
        };
        let mut events: Vec<EventRow> = core.store.events(&scope, position, &target, PAGE).await?;
        let goes_on = last.is_some() || events.len() == ROWS;
        let is_all = events.len() < ROWS;
        if let Some(last) = last {
            events.retain(|e| e.position <= last);
            if events.is_empty() {
                return Ok(());
            }
        }
        if let Some(last) = events.last() {
            position = last.position;
            for event in events {
                let Some(event) = customer_view::event(&scope, convert::event(event)) else {
                    continue;
                };
                if sender.send(Ok(event)).await.is_err() {
                    return Ok(());
                }
            }
        }
        if is_all {
            position = position.max(looked_at);
        }
        if !goes_on && !wait_for_tick(&mut change_ticks, &sender).await {
            return Ok(());
        }
    }
}
