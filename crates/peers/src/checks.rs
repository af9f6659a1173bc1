//! What the workers of a download share.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_fanout::{Chunk, DownloadCounts, Outside, Source};
use rackwright_image::Index;

use crate::frame::FrameCheck;
use crate::spread::{Spread, SpreadError};

/// What the workers share: checks that none of them uses now, and the chunks that they have taken.
pub(crate) struct Checks {
    index: Arc<Index>,
    free: Mutex<Vec<FrameCheck>>,
    /// Also chunks of requests that were given up after their chunk had come.
    taken: Mutex<BTreeMap<Chunk, Source>>,
}

impl Checks {
    pub(crate) fn new(index: Arc<Index>) -> Self {
        Self {
            index,
            free: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// The checks without work.
    pub(crate) fn free(&self) -> MutexGuard<'_, Vec<FrameCheck>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a chunk on, and notes where it came from.
    pub(crate) fn pass_on(
        &self,
        spread: &Spread,
        (chunk, source): (Chunk, Source),
        data: &[u8],
    ) -> Result<(), SpreadError> {
        (spread.take)(chunk, data).map_err(|source| SpreadError::Take { chunk, source })?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.entry(chunk).or_insert(source);
        Ok(())
    }

    /// The counts with every chunk that was taken, each counted once.
    pub(crate) fn complete(&self, counts: DownloadCounts) -> DownloadCounts {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |is: fn(&Source) -> bool| taken.values().filter(|source| is(source)).count() as u32;
        DownloadCounts {
            from_rack: number(|source| matches!(source, Source::Peer(_))),
            from_other_racks: number(|source| matches!(source, Source::Outside(Outside::Agent(_)))),
            from_origin: number(|source| *source == Source::Outside(Outside::Origin)),
            ..counts
        }
    }

    /// A check without work, or a new one.
    pub(crate) fn take(&self) -> io::Result<FrameCheck> {
        let free = self.free().pop();
        free.map_or_else(|| FrameCheck::new(self.index.clone()), Ok)
    }
}
