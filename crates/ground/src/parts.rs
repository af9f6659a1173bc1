//! The parts of the daemon: named tasks. A part that ends before the daemon is stopped ends the daemon.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

/// A part that ended before the stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the part {part:?} of the daemon ended: {why}")]
pub struct PartEnded {
    /// The part's name.
    pub part: &'static str,
    /// The reason, as far as it is known.
    pub why: String,
}

/// The result of a part that ends by itself.
pub trait Ending {
    /// The reason. `None`: the part gave no reason.
    fn why(self) -> Option<String>;
}

impl Ending for () {
    fn why(self) -> Option<String> {
        None
    }
}

impl<E: std::fmt::Display> Ending for Result<(), E> {
    fn why(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Which parts run: false for a part that ended. Only the newest state matters.
pub type Health = Arc<watch::Sender<BTreeMap<&'static str, bool>>>;

/// All running parts.
#[derive(Debug)]
pub struct Parts {
    tasks: JoinSet<Option<String>>,
    names: HashMap<Id, &'static str>,
    health: Health,
}

impl Parts {
    /// No parts yet. `health` reports which parts run.
    pub fn new(health: Health) -> Self {
        Self {
            tasks: JoinSet::new(),
            names: HashMap::new(),
            health,
        }
    }

    /// Starts a part, which runs until the daemon is stopped.
    pub fn begin<F>(&mut self, name: &'static str, part: F)
    where
        F: Future<Output: Ending> + Send + 'static,
    {
        let task = self.tasks.spawn(async move { part.await.why() });
        self.names.insert(task.id(), name);
        self.health.send_modify(|all| _ = all.insert(name, true));
    }

    /// Waits for the first part that ends; forever, if there are no parts.
    pub async fn first_end(&mut self) -> PartEnded {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.named(ended),
            None => std::future::pending().await,
        }
    }

    fn named(&mut self, ended: Result<(Id, Option<String>), JoinError>) -> PartEnded {
        let (id, why) = match ended {
            Ok((id, why)) => (id, why.unwrap_or_else(|| "it returned unexpectedly".to_owned())),
            Err(error) => (error.id(), reason(error)),
        };
        let part = self.names.remove(&id).unwrap_or_default();
        self.health.send_modify(|all| _ = all.insert(part, false));
        PartEnded { part, why }
    }

    /// Waits until all parts have ended after the stop. After `limit`, aborts the rest and returns false.
    pub async fn end(mut self, limit: Duration) -> bool {
        let orderly = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                if let Err(error) = &ended
                    && error.is_panic()
                {
                    let PartEnded { part, why } = self.named(ended);
                    tracing::error!(part, why, "a part of the daemon panicked at its end");
                }
            }
        };
        let is_orderly = tokio::time::timeout(limit, orderly).await.is_ok();
        self.tasks.shutdown().await;
        is_orderly
    }
}

/// The text of a panic. The log has it as well, with the place.
fn reason(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "it was aborted".to_owned();
    };
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    message.map_or_else(|| "it panicked".to_owned(), |message| format!("it panicked: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(begin: impl FnOnce(&mut Parts)) -> PartEnded {
        let health = Health::default();
        let mut parts = Parts::new(health.clone());
        parts.begin("lasting", std::future::pending::<()>());
        begin(&mut parts);
        let ended = parts.first_end().await;
        assert_eq!(*health.borrow(), BTreeMap::from([("lasting", true), ("short", false)]));
        ended
    }

    #[tokio::test]
    async fn a_part_that_ends_is_named_with_the_reason() {
        async fn panics() {
            panic!("at {}", "odds")
        }
        let ended_with = |why: &str| PartEnded {
            part: "short",
            why: why.to_owned(),
        };
        let returned = ended(|parts| parts.begin("short", async {})).await;
        assert_eq!(returned, ended_with("it returned unexpectedly"));
        let failed = ended(|parts| parts.begin("short", async { Err::<(), _>("no such port") })).await;
        assert_eq!(failed, ended_with("no such port"));
        let panicked = ended(|parts| parts.begin("short", panics())).await;
        assert_eq!(panicked, ended_with("it panicked: at odds"));
        assert!(panicked.to_string().contains("\"short\""), "{panicked}");
    }

    #[tokio::test]
    async fn parts_that_do_not_end_in_time_are_cut_off() {
        let mut parts = Parts::new(Health::default());
        parts.begin("lasting", std::future::pending::<()>());
        assert!(!parts.end(Duration::from_millis(1)).await);
        let mut parts = Parts::new(Health::default());
        parts.begin("short", async {});
        assert!(parts.end(Duration::from_secs(60)).await);
    }
}
