//! Which agents stay for their racks after their own images are written.

use crate::units::Span;

/// The longest time that an agent stays for others.
pub const LONGEST_LINGER: Span = Span::seconds(60);

/// What is known when an agent has written its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LingerFacts {
    /// Agents of the same rack that are to write the same image and have not begun, or have not finished.
    pub unfinished_in_rack: u32,
    /// Agents of the same rack with the whole image in memory that finished after this one.
    pub later_holders: u32,
    /// Time since this agent finished.
    pub waited: Span,
    /// Whether this agent keeps the whole image in memory.
    pub holds_all: bool,
    /// An operator or the power budget wants the machine now.
    pub called_off: bool,
}

/// The decision whether an agent stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// The agent ends: no other agent needs it.
    Leave,
    /// The agent stays for at most this time, unless the facts change before.
    Stay(Span),
}

/// The last one of a rack with the whole image stays while others of the rack are to come, for at most 60 s. Where another
/// one finished later, that one stays.
#[must_use]
pub fn linger(facts: &LingerFacts) -> Linger {
    let needed = facts.unfinished_in_rack > 0 && facts.later_holders == 0 && facts.holds_all;
    if facts.called_off || !needed || facts.waited >= LONGEST_LINGER {
        return Linger::Leave;
    }
    Linger::Stay(Span::micros(LONGEST_LINGER.as_micros() - facts.waited.as_micros()))
}
