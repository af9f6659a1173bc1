//! What a download knows about the other agents of its rack.

use crate::bits::Bits;
use crate::units::{Chunk, Moment, PeerNo, Span};

/// Most agents of a rack that a download looks at. The claim table divides larger racks.
pub const MOST_PEERS: usize = 64;

/// Requests to a peer in a row without an answer, after which it counts as away.
const AWAY_AFTER: u8 = 1;
/// Time for which an absent peer gets no request.
const UNREACHABLE_FOR: Span = Span::seconds(3);
/// A peer is slow if it takes this many times the mean.
const SLOW: u64 = 3;

/// One peer.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) have: Bits,
    /// Requests that waited at the peer, by its last answer.
    pub(crate) load: u8,
    /// Own requests to the peer without an answer.
    pub(crate) asked: u8,
    /// Mean time from a request to its chunk; zero: unknown.
    pace: Span,
    /// No request before.
    rest_until: Moment,
    /// When its set of chunks last came or was asked for.
    pub(crate) looked: Option<Moment>,
    silent: u8,
    heard: bool,
    /// Whether it may have a chunk that is not taken.
    has_new: bool,
    banned: bool,
}

impl Peer {
    fn new(chunks: u32) -> Self {
        Self {
            have: Bits::new(chunks),
            load: 0,
            asked: 0,
            pace: Span::ZERO,
            rest_until: Moment::default(),
            looked: None,
            silent: 0,
            heard: false,
            has_new: false,
            banned: false,
        }
    }

    /// Whether requests to the peer make sense.
    pub(crate) fn usable(&self, now: Moment) -> bool {
        !self.banned && self.rest_until <= now
    }

    /// Whether a search at the peer makes sense.
    pub(crate) fn may_have(&self, now: Moment) -> bool {
        self.has_new && self.usable(now)
    }

    /// Whether the peer did not answer its last requests.
    pub(crate) fn is_away(&self) -> bool {
        self.silent >= AWAY_AFTER
    }
}

/// All peers of a download.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    /// How many peers have each chunk.
    seen: Vec<u16>,
    /// Mean time from a request to its chunk, over all peers.
    pace: Span,
}

impl Peers {
    pub(crate) fn new(chunks: u32) -> Self {
        Self {
            peers: Vec::new(),
            seen: vec![0; chunks as usize],
            pace: Span::ZERO,
        }
    }

    /// Adds a peer. `None`: there are [`MOST_PEERS`] already.
    pub(crate) fn add(&mut self) -> Option<PeerNo> {
        if self.peers.len() >= MOST_PEERS {
            return None;
        }
        self.peers.push(Peer::new(self.seen.len() as u32));
        Some(PeerNo((self.peers.len() - 1) as u16))
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn get(&self, peer: PeerNo) -> Option<&Peer> {
        self.peers.get(usize::from(peer.0))
    }

    pub(crate) fn get_mut(&mut self, peer: PeerNo) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(peer.0))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerNo, &Peer)> {
        self.peers
            .iter()
            .enumerate()
            .map(|(number, peer)| (PeerNo(number as u16), peer))
    }

    /// How many peers have the chunk, as far as is known.
    pub(crate) fn seen(&self, chunk: Chunk) -> u16 {
        self.seen.get(chunk.0 as usize).copied().unwrap_or(0)
    }

    pub(crate) fn pace(&self) -> Span {
        self.pace
    }

    /// The peer reported its chunks, and the number of requests that wait there. A banned peer is not believed. Returns
    /// whether it has a chunk that it did not have before.
    pub(crate) fn saw(&mut self, peer: PeerNo, have: &Bits, load: u8, now: Moment) -> bool {
        let Some(known) = self.peers.get_mut(usize::from(peer.0)).filter(|known| !known.banned) else {
            return false;
        };
        if have.chunks() as usize != self.seen.len() {
            return false;
        }
        let is_news = have.any_outside(&[&known.have]);
        for chunk in have.outside(&[&known.have]) {
            self.seen[chunk.0 as usize] += 1;
        }
        for chunk in known.have.outside(&[have]) {
            self.seen[chunk.0 as usize] -= 1;
        }
        known.have.clone_from(have);
        known.load = load;
        known.looked = Some(now);
        known.heard = true;
        known.has_new |= is_news;
        if known.is_away() {
            known.rest_until = now;
        }
        known.silent = 0;
        is_news
    }

    /// A search at the peer found nothing: no more searches until it has something new.
    pub(crate) fn has_nothing(&mut self, peer: PeerNo) {
        if let Some(known) = self.get_mut(peer) {
            known.has_new = false;
        }
    }

    /// A chunk is no longer on its way.
    pub(crate) fn look_again(&mut self, chunk: Chunk) {
        for known in self.peers.iter_mut().filter(|known| known.have.has(chunk)) {
            known.has_new = true;
        }
    }

    /// A chunk came from the peer after `took`.
    pub(crate) fn delivered(&mut self, peer: PeerNo, took: Span) {
        self.pace = self.pace.averaged(took);
        if let Some(known) = self.get_mut(peer) {
            known.pace = known.pace.averaged(took);
        }
    }

    /// The peer has no room for a request now.
    pub(crate) fn busy(&mut self, peer: PeerNo, rest: Span, now: Moment) {
        if let Some(known) = self.get_mut(peer) {
            known.rest_until = now.plus(rest);
        }
    }

    /// The peer did not answer. Returns whether the peer counts as unreachable now.
    pub(crate) fn silent(&mut self, peer: PeerNo, waited: Span, now: Moment) -> bool {
        let Some(known) = self.get_mut(peer) else {
            return false;
        };
        known.silent = known.silent.saturating_add(1);
        if waited > Span::ZERO {
            known.pace = known.pace.averaged(waited);
        }
        if !known.is_away() {
            return false;
        }
        known.rest_until = now.plus(UNREACHABLE_FOR);
        self.forget(peer);
        true
    }

    /// The peer sent wrong bytes: nothing more is asked from it. Returns whether this is new.
    pub(crate) fn ban(&mut self, peer: PeerNo) -> bool {
        self.forget(peer);
        let Some(known) = self.get_mut(peer) else {
            return false;
        };
        !std::mem::replace(&mut known.banned, true)
    }

    fn forget(&mut self, peer: PeerNo) {
        let Some(known) = self.peers.get_mut(usize::from(peer.0)) else {
            return;
        };
        for chunk in known.have.iter() {
            self.seen[chunk.0 as usize] -= 1;
        }
        known.have = Bits::new(self.seen.len() as u32);
    }

    /// Whether the peer takes much longer than others.
    pub(crate) fn is_slow(&self, peer: &Peer) -> bool {
        self.pace != Span::ZERO && peer.pace > self.pace.times(SLOW)
    }

    /// Whether requests to any peer make sense.
    pub(crate) fn any_usable(&self, now: Moment) -> bool {
        self.peers.iter().any(|peer| peer.usable(now))
    }

    /// When the first of the peers that get no request now may get one again.
    pub(crate) fn next_usable(&self, now: Moment) -> Option<Moment> {
        let resting = self.peers.iter().filter(|peer| !peer.banned && peer.rest_until > now);
        resting.map(|peer| peer.rest_until).min()
    }

    /// Peers that never answered and count as away, and whether any peer ever answered.
    pub(crate) fn reachable(&self) -> (usize, bool) {
        let away = self.peers.iter().filter(|peer| !peer.heard && peer.is_away()).count();
        (away, self.peers.iter().any(|peer| peer.heard))
    }
}
