//! Reads recordings, as far as the caller may see them.

use std::path::PathBuf;
use std::sync::Arc;

use rackwright_ground::api_error::ApiError;
use rackwright_ground::core::Core;
use rackwright_serial::record::{Boot, Piece, Reader, boots};

use super::access::ConsoleAccess;
use crate::console::Consoles;

/// Pieces read per batch.
const BATCH: usize = 64;

/// The wanted part of a recording. Times are in microseconds since 1970 UTC.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogFilter {
    /// Only from this time on.
    pub since_us: Option<i64>,
    /// Only before this time.
    pub until_us: Option<i64>,
    /// Only the boot that began at this time.
    pub boot_us: Option<i64>,
}

impl LogFilter {
    fn has(&self, piece: &Piece) -> bool {
        self.since_us.is_none_or(|since| piece.at_us >= since)
            && self.until_us.is_none_or(|until| piece.at_us < until)
            && self.boot_us.is_none_or(|boot| piece.boot_us == boot)
    }
}

/// Runs file system work outside the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| ApiError::Internal(error.to_string()))?;
    done.map_err(|error| ApiError::Internal(format!("a recording cannot be read: {error}")))
}

/// The boots that the caller may read, oldest first.
///
/// # Errors
/// The file system failed.
pub async fn list(core: &Core, access: &ConsoleAccess) -> Result<Vec<Boot>, ApiError> {
    let (folder, access) = (core.feature::<Consoles>().folder(&access.record.uid), access.clone());
    blocking(move || boots(&folder, |head| access.may_read(head))).await
}

/// The boot with this number: 1 is the oldest, -1 the last.
///
/// # Errors
/// No boot has this number.
pub fn numbered(boots: &[Boot], number: i32) -> Result<Boot, ApiError> {
    let count = i32::try_from(boots.len()).unwrap_or(i32::MAX);
    let index = if number > 0 {
        number - 1
    } else {
        count.saturating_add(number)
    };
    let found = usize::try_from(index).ok().and_then(|index| boots.get(index));
    found.copied().ok_or_else(|| {
        let kept = match count {
            0 => "no console output of this node is recorded".to_owned(),
            _ => format!("use 1 to {count}, or -1 (the last boot) to -{count}"),
        };
        ApiError::invalid("boot", kept)
    })
}

/// Reads a recording in batches.
pub struct LogPages {
    reader: Option<Reader>,
    access: Arc<ConsoleAccess>,
    filter: LogFilter,
}

impl LogPages {
    /// Starts at the beginning of the recording.
    #[must_use]
    pub fn new(folder: PathBuf, access: ConsoleAccess, filter: LogFilter) -> Self {
        Self {
            reader: Some(Reader::new(folder)),
            access: Arc::new(access),
            filter,
        }
    }

    /// The next pieces; empty at the present end of the recording.
    ///
    /// # Errors
    /// The file system failed.
    pub async fn next(&mut self) -> Result<Vec<Piece>, ApiError> {
        let Some(mut reader) = self.reader.take() else {
            return Ok(Vec::new());
        };
        let (access, filter) = (Arc::clone(&self.access), self.filter);
        let (reader, found) = blocking(move || {
            let mut found = Vec::new();
            while found.len() < BATCH {
                match reader.next(&|head| access.may_read(head))? {
                    Some(piece) if filter.has(&piece) => found.push(piece),
                    Some(_) => {}
                    None => break,
                }
            }
            Ok((reader, found))
        })
        .await?;
        self.reader = Some(reader);
        Ok(found)
    }
}
