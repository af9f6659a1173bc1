//! Streams: changes of nodes, and events. Both read the event log, so no change between the first look and the first
//! wait is lost, and a slow reader delays no other stream.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::clock;
use rackwright_ground::core::{ChangeTicks, Core};
use rackwright_lifecycle::NodeId;
use rackwright_store::{EventFilter, EventRow, Filter, Scope, StoreError, Term};
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
    let reader = sender.clone();
    tokio::spawn(async move {
        tokio::select! {
            // The client has ended the stream.
            () = reader.closed() => {}
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
    narrowed.push(Term::is("name", id.as_str()));
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

/// Which events a stream sends.
#[derive(Debug)]
pub struct WantedEvents {
    /// The caller's view.
    pub scope: Scope,
    /// Which events of the view.
    pub filter: EventFilter,
    /// Position of the first look: only later events are sent.
    pub after: i64,
    /// The number of newest events up to `after` that come first.
    pub newest: usize,
    /// The position after which the stream ends; `None`: it goes on.
    pub last: Option<i64>,
}

/// Events after a position, then new events.
pub fn events(core: Arc<Core>, wanted: WantedEvents) -> impl Stream<Item = Result<v1::Event, Status>> {
    spawn(core, move |core, sender| follow_events(core, wanted, sender))
}

/// The newest events up to `wanted.after`, oldest first.
async fn newest_events(core: &Core, wanted: &WantedEvents) -> Result<VecDeque<v1::Event>, StoreError> {
    let (scope, filter) = (&wanted.scope, &wanted.filter);
    let (mut found, mut last) = (VecDeque::new(), wanted.after);
    while found.len() < wanted.newest {
        let rows = core.store.newest_events(scope, filter, last, PAGE).await?;
        let is_all = rows.len() < ROWS;
        last = rows.first().map_or(0, |row| row.position - 1);
        let events = rows.into_iter().rev();
        let seen = events.filter_map(|row| customer_view::event(scope, convert::event(row)));
        for event in seen.take(wanted.newest - found.len()) {
            found.push_front(event);
        }
        if is_all {
            break;
        }
    }
    Ok(found)
}

async fn follow_events(core: Arc<Core>, wanted: WantedEvents, sender: Sender<v1::Event>) -> Result<(), ApiError> {
    let mut change_ticks = core.change_ticks(PAUSE);
    for event in newest_events(&core, &wanted).await? {
        if sender.send(Ok(event)).await.is_err() {
            return Ok(());
        }
    }
    let WantedEvents {
        scope, filter, last, ..
    } = wanted;
    let mut position = wanted.after;
    loop {
        // With a filtered view, all events up to this position count as read, so later looks skip them.
        let looked_at = match &scope {
            Scope::Site if !filter.is_narrow() => position,
            _ => core.store.event_range().await?.1,
        };
        let mut events: Vec<EventRow> = core.store.events_that_match(&scope, &filter, position, PAGE).await?;
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
