//! The states of features in the state of the daemon. The state does not know them: each feature defines its own.

use std::any::Any;
use std::sync::OnceLock;

use crate::config::Config;

/// The state of one feature, made at its first use.
pub trait FeatureState: Send + Sync + 'static {
    /// The state at the start of a process with these settings.
    fn new(config: &Config) -> Self;
}

/// One state of each feature that was used, as a chain that only grows. A lookup compares a few type ids and takes no lock.
#[derive(Default)]
pub struct Features(OnceLock<Box<Link>>);

struct Link {
    state: Box<dyn Any + Send + Sync>,
    next: Features,
}

impl Features {
    /// The state of type `T`.
    pub fn get<T: FeatureState>(&self, config: &Config) -> &T {
        let mut features = self;
        loop {
            let link = features.0.get_or_init(|| {
                Box::new(Link {
                    state: Box::new(T::new(config)),
                    next: Features::default(),
                })
            });
            match link.state.downcast_ref() {
                Some(state) => return state,
                None => features = &link.next,
            }
        }
    }

    /// Puts another state in the place of the present one, for a test.
    pub fn replace<T: FeatureState>(&mut self, state: T) {
        // A lookup finds the first state of its type.
        let link = Link {
            state: Box::new(state),
            next: std::mem::take(self),
        };
        *self = Self(OnceLock::from(Box::new(link)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::testing;

    #[derive(Default)]
    struct One(AtomicU32);
    struct Other(String);

    impl FeatureState for One {
        fn new(_: &Config) -> Self {
            Self::default()
        }
    }

    impl FeatureState for Other {
        fn new(config: &Config) -> Self {
            Self(config.site.clone())
        }
    }

    #[test]
    fn each_feature_has_one_state_made_from_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        let config = testing::config(dir.path(), "site: hall-1\n");
        let mut features = Features::default();
        features.get::<One>(&config).0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(features.get::<Other>(&config).0, "hall-1");
        assert_eq!(features.get::<One>(&config).0.load(Ordering::Relaxed), 1);
        features.replace(Other("hall-2".into()));
        assert_eq!(features.get::<Other>(&config).0, "hall-2");
        features.replace(One(AtomicU32::new(7)));
        assert_eq!(features.get::<One>(&config).0.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn threads_that_use_a_feature_first_get_the_same_state() {
        let dir = tempfile::tempdir().unwrap();
        let config = testing::config(dir.path(), "");
        let features = Features::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    features.get::<Other>(&config);
                    features.get::<One>(&config).0.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(features.get::<One>(&config).0.load(Ordering::Relaxed), 8);
    }
}
