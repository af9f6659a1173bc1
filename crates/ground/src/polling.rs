//! Readings of many devices at intervals: which device is due, the readings in progress, and the loop around both.
//!
//! A [`DueQueue`] holds the time of each device's next reading. [`Readings`] holds the readings in progress by device, so
//! that a panic ends one reading and names its device. [`run`] ticks, hands over ended readings and events, and aborts the
//! rest at the stop. [`moment_within`] spreads devices over an interval. The [`Poller`] decides when a device is due again
//! and how many readings run at once.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use rackwright_lifecycle::Timestamp;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::share::stable_hash;

/// The time of each device's next reading.
#[derive(Debug)]
pub struct DueQueue<K> {
    times: HashMap<K, Timestamp>,
    order: BTreeSet<(Timestamp, K)>,
}

impl<K> Default for DueQueue<K> {
    fn default() -> Self {
        Self {
            times: HashMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Hash + Ord> DueQueue<K> {
    /// Adds a device, or moves its next reading.
    pub fn set(&mut self, key: K, at: Timestamp) {
        if let Some(before) = self.times.insert(key.clone(), at) {
            self.order.remove(&(before, key.clone()));
        }
        self.order.insert((at, key));
    }

    /// The time of a device's next reading.
    pub fn at<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Timestamp>
    where
        K: Borrow<Q>,
    {
        self.times.get(key).copied()
    }

    /// Keeps only the devices for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.times.retain(|key, _| keep(key));
        let times = &self.times;
        self.order.retain(|(_, key)| times.contains_key(key));
    }

    /// Takes the device that has been due longest. It leaves the queue until [`Self::set`] adds it again.
    pub fn take_due(&mut self, now: Timestamp) -> Option<K> {
        if self.order.first()?.0 > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.times.remove(&key);
        Some(key)
    }

    /// Drops all devices.
    pub fn clear(&mut self) {
        self.times.clear();
        self.order.clear();
    }

    /// Number of devices.
    pub fn count(&self) -> usize {
        self.order.len()
    }
}

/// The readings in progress.
#[derive(Debug)]
pub struct Readings<K, T> {
    tasks: JoinSet<T>,
    keys: HashMap<Id, K>,
}

impl<K, T> Default for Readings<K, T> {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            keys: HashMap::new(),
        }
    }
}

impl<K, T: Send + 'static> Readings<K, T> {
    /// Begins the reading of a device.
    pub fn begin(&mut self, key: K, reading: impl Future<Output = T> + Send + 'static) {
        let task = self.tasks.spawn(reading);
        self.keys.insert(task.id(), key);
    }

    /// Number of readings in progress.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no reading is in progress.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Number of readings in progress of these devices.
    pub fn count(&self, is_of: impl Fn(&K) -> bool) -> usize {
        self.keys.values().filter(|key| is_of(key)).count()
    }

    /// The next reading that ends, by device. An error is a panic of that reading. `None`: no reading is in progress.
    pub async fn next(&mut self) -> Option<(K, Result<T, JoinError>)> {
        let ended = self.tasks.join_next_with_id().await?;
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.keys.remove(&id)?, outcome))
    }

    /// Aborts all readings.
    pub async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
        self.keys.clear();
    }
}

/// The rules of one kind of readings.
pub trait Poller: Send {
    /// A device.
    type Key: Send;
    /// The result of a reading.
    type Outcome: Send + 'static;
    /// Something besides ticks and readings to which the rules react. `()`: there is nothing.
    type Event: Send;

    /// Begins the due readings.
    fn tick(&mut self, readings: &mut Readings<Self::Key, Self::Outcome>) -> impl Future<Output = ()> + Send;

    /// Handles the end of a reading. An error is a panic of that reading.
    fn ended(&mut self, key: Self::Key, outcome: Result<Self::Outcome, JoinError>) -> impl Future<Output = ()> + Send;

    /// Waits for the next event. The future may be dropped before it ends, and must then lose no event. The default never
    /// ends.
    fn next_event(&mut self) -> impl Future<Output = Self::Event> + Send {
        std::future::pending()
    }

    /// Handles an event. The default does nothing.
    fn handle(&mut self, _event: Self::Event) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Ticks at once and after every pause until the stop, and hands over the events and the readings that end. A late tick
/// delays the following ones. The stop aborts the readings in progress.
pub async fn run<P: Poller>(stop: &CancellationToken, pause: Duration, poller: &mut P) {
    let mut readings = Readings::<P::Key, P::Outcome>::default();
    let mut tick = tokio::time::interval(pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = tick.tick() => poller.tick(&mut readings).await,
            Some((key, outcome)) = readings.next(), if !readings.is_empty() => poller.ended(key, outcome).await,
            event = poller.next_event() => poller.handle(event).await,
        }
    }
    readings.shutdown().await;
}

/// A time below `span_us`, in microseconds: the same in every process for equal `words`, and evenly spread for different
/// ones.
pub fn moment_within<'a>(span_us: i64, words: impl IntoIterator<Item = &'a [u8]>) -> i64 {
    // Below 2^53 a float is exact, and the product stays below the span.
    ((stable_hash(words) >> 11) as f64 / (1_u64 << 53) as f64 * span_us as f64) as i64
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::seconds;

    use super::*;

    fn at(s: i64) -> Timestamp {
        Timestamp(0).plus(seconds(s))
    }

    #[test]
    fn the_longest_overdue_device_comes_first_and_once() {
        let mut queue = DueQueue::default();
        for (name, s) in [("a", 30), ("b", 10), ("c", 20), ("d", 99)] {
            queue.set(name.to_owned(), at(s));
        }
        assert_eq!(queue.take_due(at(9)), None);
        queue.set("a".to_owned(), at(5));
        let due: Vec<String> = std::iter::from_fn(|| queue.take_due(at(30))).collect();
        assert_eq!(due, ["a", "b", "c"]);
        assert_eq!((queue.count(), queue.at("d"), queue.at("a")), (1, Some(at(99)), None));
        queue.set("a".to_owned(), at(1));
        queue.retain(|name| name == "a");
        assert_eq!((queue.count(), queue.take_due(at(200)).as_deref()), (1, Some("a")));
        queue.set("a".to_owned(), at(1));
        queue.clear();
        assert_eq!((queue.count(), queue.take_due(at(200))), (0, None));
    }

    #[test]
    fn times_are_spread_evenly_over_the_span() {
        let span = 1_000_000;
        let part = |node: &str, round: u64| moment_within(span, [node.as_bytes(), &round.to_be_bytes()]);
        let mut tenths = [0; 10];
        for n in 0..10_000 {
            let at = part(&format!("node-{n}"), 3);
            assert!((0..span).contains(&at));
            tenths[(at / (span / 10)) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1200).contains(count)), "{tenths:?}");
        assert_ne!(part("n", 1), part("n", 2));
    }

    const PAUSE: Duration = Duration::from_millis(500);
    const AT_ONCE: usize = 2;

    /// Reads three devices every ten seconds. A reading takes a second; the reading of device 1 panics.
    struct Devices {
        begun: tokio::time::Instant,
        queue: DueQueue<u32>,
        most: usize,
        read: Vec<(u32, u64)>,
        panicked: Vec<u32>,
    }

    impl Poller for Devices {
        type Key = u32;
        type Outcome = ();
        type Event = ();

        async fn tick(&mut self, readings: &mut Readings<u32, ()>) {
            let now = at(self.begun.elapsed().as_secs() as i64);
            while readings.len() < AT_ONCE
                && let Some(device) = self.queue.take_due(now)
            {
                self.queue.set(device, now.plus(seconds(10)));
                readings.begin(device, async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    assert_ne!(device, 1, "the reading of this device panics");
                });
            }
            self.most = self.most.max(readings.count(|_| true));
        }

        async fn ended(&mut self, key: u32, outcome: Result<(), JoinError>) {
            match outcome {
                Ok(()) => self.read.push((key, self.begun.elapsed().as_secs())),
                Err(error) => {
                    assert!(error.is_panic());
                    self.panicked.push(key);
                }
            }
        }
    }

    /// Reacts to numbers from elsewhere, beside a reading that lasts.
    struct Listener {
        numbers: tokio::sync::mpsc::Receiver<u32>,
        handled: Vec<u32>,
        stop: CancellationToken,
    }

    impl Poller for Listener {
        type Key = ();
        type Outcome = ();
        type Event = u32;

        async fn tick(&mut self, readings: &mut Readings<(), ()>) {
            if readings.is_empty() {
                readings.begin((), std::future::pending());
            }
        }

        async fn ended(&mut self, (): (), _: Result<(), JoinError>) {}

        async fn next_event(&mut self) -> u32 {
            match self.numbers.recv().await {
                Some(number) => number,
                None => std::future::pending().await,
            }
        }

        async fn handle(&mut self, number: u32) {
            self.handled.push(number);
            if number == 9 {
                self.stop.cancel();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_handled_in_order_between_ticks() {
        let (sender, numbers) = tokio::sync::mpsc::channel(1);
        let stop = CancellationToken::new();
        let mut listener = Listener {
            numbers,
            handled: Vec::new(),
            stop: stop.clone(),
        };
        tokio::spawn(async move {
            for number in 0..10 {
                // Other pauses than those of the ticks.
                tokio::time::sleep(Duration::from_millis(170)).await;
                sender.send(number).await.unwrap();
            }
        });
        run(&stop, PAUSE, &mut listener).await;
        assert_eq!(listener.handled, (0..10).collect::<Vec<u32>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_one_reading_and_the_stop_ends_all() {
        let mut devices = Devices {
            begun: tokio::time::Instant::now(),
            queue: DueQueue::default(),
            most: 0,
            read: Vec::new(),
            panicked: Vec::new(),
        };
        (0..3).for_each(|device| devices.queue.set(device, at(0)));
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        tokio::spawn(async move {
            // Readings of the second round are in progress.
            tokio::time::sleep(Duration::from_millis(10_700)).await;
            stopping.cancel();
        });
        run(&stop, PAUSE, &mut devices).await;
        assert!(
            devices.begun.elapsed() < Duration::from_secs(11),
            "the stop waits for no reading"
        );
        assert_eq!(devices.most, AT_ONCE, "no more readings at once");
        assert_eq!(devices.panicked, [1]);
        assert_eq!(
            devices.read.iter().map(|(device, _)| *device).collect::<Vec<_>>(),
            [0, 2]
        );
        assert!(
            devices.read[1].1 >= 2,
            "the third device waits for room: {:?}",
            devices.read
        );
    }
}
