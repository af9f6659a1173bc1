//! The requests at an agent: their order, and their limits.

use std::collections::VecDeque;

/// Limits of an agent's uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadSettings {
    /// Chunks sent at once. Four keep the link full while some receivers are busy; more make each of them later.
    pub at_once: usize,
    /// An agent sends one chunk at a time, and one more for each such number of chunks that it holds: so the first copies of
    /// an image come early, and spread.
    pub few: u32,
    /// Requests of the own rack that may wait.
    pub line: usize,
    /// Requests of other racks that may wait.
    pub outside_line: usize,
}

impl Default for UploadSettings {
    fn default() -> Self {
        Self {
            at_once: 4,
            few: 8,
            line: 1,
            outside_line: 8,
        }
    }
}

/// The requests at one agent. `R` is what the caller needs to answer one.
#[derive(Debug, Clone)]
pub struct Uploads<R> {
    settings: UploadSettings,
    sending: usize,
    /// Requests of other racks come first: each of them feeds a whole rack.
    outside: VecDeque<R>,
    rack: VecDeque<R>,
}

impl<R> Uploads<R> {
    /// No requests.
    #[must_use]
    pub fn new(settings: UploadSettings) -> Self {
        Self {
            settings,
            sending: 0,
            outside: VecDeque::new(),
            rack: VecDeque::new(),
        }
    }

    /// A request came, of the own rack or of another one.
    ///
    /// # Errors
    /// The line is full. The caller gets the request back, and refuses it, so that the peer asks elsewhere.
    pub fn offer(&mut self, request: R, is_outside: bool) -> Result<(), R> {
        let (line, limit) = if is_outside {
            (&mut self.outside, self.settings.outside_line)
        } else {
            (&mut self.rack, self.settings.line)
        };
        if line.len() >= limit {
            return Err(request);
        }
        line.push_back(request);
        Ok(())
    }

    /// The next request to answer, if one waits and the link has room. The caller asks after each request, each answer and
    /// each new chunk, and reports the end of the answer by [`Uploads::sent`]. `held`: number of chunks that the agent
    /// holds.
    pub fn next(&mut self, held: u32) -> Option<R> {
        let at_once = self
            .settings
            .at_once
            .min(1 + (held / self.settings.few.max(1)) as usize);
        if self.sending >= at_once {
            return None;
        }
        let next = self.outside.pop_front().or_else(|| self.rack.pop_front());
        self.sending += usize::from(next.is_some());
        next
    }

    /// An answer was sent, or broke off.
    pub fn sent(&mut self) {
        self.sending = self.sending.saturating_sub(1);
    }

    /// Requests that wait or are answered, as shown to peers.
    #[must_use]
    pub fn load(&self) -> u8 {
        u8::try_from(self.sending + self.outside.len() + self.rack.len()).unwrap_or(u8::MAX)
    }
}
