use super::*;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn connections(total: usize, unknown: usize, per_address: usize) -> Arc<Connections> {
    Connections::new("test", total, unknown, per_address)
}

/// True if the connection waits for room.
async fn waits(connections: &Arc<Connections>, address: IpAddr) -> bool {
    // Shorter than [`MIN_IDLE_TIME`].
    let soon = Duration::from_millis(1);
    tokio::time::timeout(soon, connections.admit(address)).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn the_oldest_idle_connection_is_closed_when_the_listener_is_full() {
    let connections = connections(3, 3, 9);
    let mut slots = Vec::new();
    for n in 1..=3 {
        slots.push(connections.admit(address(n)).await.unwrap());
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let closed: Vec<_> = slots.iter().map(Slot::closed).collect();
    let is_closed = || closed.iter().map(CancellationToken::is_cancelled).collect::<Vec<_>>();
    // The first connection is answering a request.
    let busy = slots[0].handle().busy();
    assert!(waits(&connections, address(4)).await, "nothing is old enough");
    // The paused clock advances by itself.
    let fourth = connections.admit(address(4)).await.unwrap();
    assert_eq!(is_closed(), [false, true, false]);
    drop(busy);
    tokio::time::advance(MIN_IDLE_TIME).await;
    let _fifth = connections.admit(address(5)).await.unwrap();
    assert_eq!(is_closed(), [false, true, true], "the first became idle later");
    assert!(!fourth.closed().is_cancelled());
    // The first connection left the table by itself; the other two were closed.
    drop(slots);
    assert_eq!(
        connections.counts(),
        Counts {
            known: 0,
            unknown: 2,
            refused: 0,
            closed: 2
        }
    );
}

#[tokio::test(start_paused = true)]
async fn an_address_over_its_limit_closes_only_its_own_connections() {
    let connections = connections(9, 9, 2);
    let other = connections.admit(address(1)).await.unwrap();
    let mut own = Vec::new();
    for _ in 0..2 {
        own.push(connections.admit(address(2)).await.unwrap());
    }
    assert!(connections.admit(address(2)).await.is_none(), "both are young");
    tokio::time::advance(MIN_IDLE_TIME).await;
    assert!(connections.admit(address(2)).await.is_some());
    assert!(own[0].closed().is_cancelled() && !own[1].closed().is_cancelled());
    assert!(!other.closed().is_cancelled());
    let busy: Vec<_> = own.iter().map(|slot| slot.handle().busy()).collect();
    let third = connections.admit(address(2)).await.unwrap();
    let _busy = third.handle().busy();
    tokio::time::advance(MIN_IDLE_TIME).await;
    assert!(connections.admit(address(2)).await.is_none(), "both are busy");
    assert_eq!(connections.counts().refused, 2);
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn known_peers_are_neither_counted_by_address_nor_closed() {
    let connections = connections(4, 2, 1);
    let mut known = Vec::new();
    for _ in 0..4 {
        let slot = connections.admit(address(1)).await.unwrap();
        slot.handle().known();
        known.push(slot);
    }
    assert_eq!(connections.counts().known, 4);
    tokio::time::advance(MIN_IDLE_TIME).await;
    connections.close_idle(MIN_IDLE_TIME);
    assert!(known.iter().all(|slot| !slot.closed().is_cancelled()));
    assert!(waits(&connections, address(2)).await, "the total is reached");
    let waiting = connections.admit(address(2));
    drop(known.pop());
    assert!(waiting.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_after_a_while() {
    let connections = connections(9, 9, 9);
    let (idle, busy) = (
        connections.admit(address(1)).await.unwrap(),
        connections.admit(address(1)).await.unwrap(),
    );
    let request = busy.handle().busy();
    let limit = Duration::from_secs(5);
    tokio::time::advance(Duration::from_secs(4)).await;
    idle.handle().opened();
    tokio::time::advance(Duration::from_secs(4)).await;
    connections.close_idle(limit);
    assert!(!idle.closed().is_cancelled(), "its handshake is done for 4 s only");
    tokio::time::advance(Duration::from_secs(1)).await;
    connections.close_idle(limit);
    assert!(idle.closed().is_cancelled() && !busy.closed().is_cancelled());
    drop(request);
    drop((idle, busy));
    assert_eq!(connections.counts().unknown, 0);
}

#[test]
fn a_network_of_ipv6_counts_as_one_address() {
    let parse = |text: &str| counted_address(text.parse().unwrap());
    assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:1"));
    assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
    assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    assert_ne!(parse("10.0.0.1"), parse("10.0.0.2"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_login_has_ended_counts_as_unknown_again() {
    let connections = connections(9, 1, 1);
    let slot = connections.admit(address(1)).await.unwrap();
    slot.handle().unknown();
    slot.handle().known();
    slot.handle().known();
    assert_eq!((connections.counts().known, connections.counts().unknown), (1, 0));
    let busy = slot.handle().busy();
    slot.handle().unknown();
    assert_eq!((connections.counts().known, connections.counts().unknown), (0, 1));
    tokio::time::advance(MIN_IDLE_TIME).await;
    assert!(waits(&connections, address(2)).await, "its request is being answered");
    drop(busy);
    tokio::time::advance(MIN_IDLE_TIME).await;
    let _other = connections.admit(address(2)).await.unwrap();
    assert!(slot.closed().is_cancelled());
    drop(slot);
    assert_eq!((connections.counts().known, connections.counts().unknown), (0, 1));
}
