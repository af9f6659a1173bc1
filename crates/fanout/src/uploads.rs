//! The requests at an agent: their order, and their limits.

use std::collections::VecDeque;

use crate::units::Span;

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
    /// Most uploads to other racks, one after the other, while the own rack waits.
    pub outside_in_a_row: u32,
    /// A receiver loses its place if it was slower than `least_rate` for this time, and another one waits.
    pub slow_after: Span,
    /// The least bytes in a second.
    pub least_rate: u64,
}

impl Default for UploadSettings {
    fn default() -> Self {
        Self {
            at_once: 4,
            few: 8,
            line: 1,
            outside_line: 8,
            outside_in_a_row: 2,
            slow_after: Span::seconds(2),
            least_rate: 256 << 10,
        }
    }
}

/// The requests at one agent. `N` names the node that asks, and `R` is what the caller needs to answer a request.
#[derive(Debug, Clone)]
pub struct Uploads<N, R> {
    settings: UploadSettings,
    /// The nodes that get an answer now, each once.
    sending: Vec<N>,
    /// Requests of other racks come first, as each of them feeds a whole rack, but only some of them while the own rack waits.
    outside: VecDeque<(N, R)>,
    rack: VecDeque<(N, R)>,
    /// Uploads to other racks since the last one to the own rack.
    outside_in_a_row: u32,
}

impl<N: Clone + Eq, R> Uploads<N, R> {
    /// No requests.
    #[must_use]
    pub fn new(settings: UploadSettings) -> Self {
        Self {
            settings,
            sending: Vec::new(),
            outside: VecDeque::new(),
            rack: VecDeque::new(),
            outside_in_a_row: 0,
        }
    }

    /// A request of a node came, of the own rack or of another one.
    ///
    /// # Errors
    /// The line is full, or a request of the node waits already. The caller gets the request back, and refuses it, so that
    /// the peer asks elsewhere.
    pub fn offer(&mut self, node: N, request: R, is_outside: bool) -> Result<(), R> {
        if self.waiting().any(|waiting| *waiting == node) {
            return Err(request);
        }
        let (line, limit) = if is_outside {
            (&mut self.outside, self.settings.outside_line)
        } else {
            (&mut self.rack, self.settings.line)
        };
        // A request behind an answer to the same node takes no place of others.
        let waits_for_place = |(node, _): &&(N, R)| !self.sending.contains(node);
        if line.iter().filter(waits_for_place).count() >= limit {
            return Err(request);
        }
        line.push_back((node, request));
        Ok(())
    }

    /// The nodes whose requests wait.
    fn waiting(&self) -> impl Iterator<Item = &N> {
        self.outside.iter().chain(&self.rack).map(|(node, _)| node)
    }

    /// The next request to answer, with its node, if one waits and the link has room. A node gets one answer at a time. The
    /// caller asks after each request, each answer and each new chunk, and reports the end of the answer by
    /// [`Uploads::sent`]. `held`: number of chunks that the agent holds.
    pub fn next(&mut self, held: u32) -> Option<(N, R)> {
        let at_once = self
            .settings
            .at_once
            .min(1 + (held / self.settings.few.max(1)) as usize);
        if self.sending.len() >= at_once {
            return None;
        }
        let first = |line: &VecDeque<(N, R)>| line.iter().position(|(node, _)| !self.sending.contains(node));
        let (outside, rack) = (first(&self.outside), first(&self.rack));
        let is_outside =
            outside.is_some() && (rack.is_none() || self.outside_in_a_row < self.settings.outside_in_a_row);
        let next = if is_outside {
            self.outside.remove(outside?)
        } else {
            self.rack.remove(rack?)
        };
        self.outside_in_a_row = if is_outside {
            self.outside_in_a_row.saturating_add(1)
        } else {
            0
        };
        self.sending.extend(next.as_ref().map(|(node, _)| node.clone()));
        next
    }

    /// An answer to the node was sent, or broke off.
    pub fn sent(&mut self, node: &N) {
        if let Some(at) = self.sending.iter().position(|other| other == node) {
            self.sending.swap_remove(at);
        }
    }

    /// Whether a receiver loses its place: it took `bytes` in the last time of this length, which is too slow, and another node
    /// waits.
    #[must_use]
    pub fn is_too_slow(&self, bytes: u64, took: Span) -> bool {
        let least = u128::from(self.settings.least_rate) * u128::from(took.as_micros()) / 1_000_000;
        took >= self.settings.slow_after
            && u128::from(bytes) < least
            && self.waiting().any(|node| !self.sending.contains(node))
    }

    /// Requests that wait or are answered, as shown to peers.
    #[must_use]
    pub fn load(&self) -> u8 {
        u8::try_from(self.sending.len() + self.outside.len() + self.rack.len()).unwrap_or(u8::MAX)
    }
}
