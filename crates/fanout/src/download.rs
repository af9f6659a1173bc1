//! The decisions of one agent about its download: which peer it asks for which chunk, and when it claims.
//!
//! The caller asks [`Download::step`] until the answer is [`Step::Rest`] or [`Step::Done`], carries out each step, and tells
//! what came of it. Chunks count as received only after the caller has verified their content.

use crate::bits::Bits;
use crate::chance::Chance;
use crate::peers::Peers;
use crate::units::{AgentNo, Chunk, Moment, Outside, PeerNo, Span};

/// Limits of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadSettings {
    /// Requests to peers of the rack at once (2 to 4).
    pub window: u32,
    /// Claimed chunks at once (1 to 8). An agent that knows no peer claims as many as it would have requests with peers:
    /// `window` and `claims`.
    pub claims: u32,
    /// Requests to one peer at once.
    pub per_peer: u8,
    /// Shortest time before a request counts as unanswered.
    pub least_patience: Span,
    /// Shortest time between two looks at what peers have.
    pub least_look: Span,
    /// Number of last chunks that may be requested from two peers at once.
    pub endgame: u32,
    /// After this time a claim without an answer means that the claim table is wrong about the chunks of the rack.
    pub stuck_after: Span,
}

impl Default for DownloadSettings {
    fn default() -> Self {
        Self {
            window: 4,
            claims: 2,
            per_peer: 1,
            least_patience: Span::seconds(1),
            least_look: Span::millis(4),
            endgame: 8,
            stuck_after: Span::seconds(2),
        }
    }
}

/// Most requests for one chunk at once.
const MOST_DUPLICATES: usize = 2;
/// An answer that takes this many times the mean is not waited for.
const PATIENCE: u64 = 6;
/// The time before a request counts as unanswered while no chunk has come from a peer.
const FIRST_PATIENCE: Span = Span::seconds(10);
/// The shortest time before a request to the image servers counts as unanswered. What came of a chunk would be fetched again.
const ORIGIN_PATIENCE: Span = Span::seconds(90);
/// The longest time before a request counts as unanswered, unless a lease is longer.
const LONGEST_PATIENCE: Span = Span::seconds(60);
/// Most doublings of the patience.
const MOST_DOUBLINGS: u32 = 6;
/// Peers that cannot be reached, after which the agent counts as alone.
const ALONE_AFTER: usize = 3;
/// Most chunks that one claim names as stuck.
const MOST_STUCK: usize = 64;
/// Looks without news become rarer, down to one in 2 to the power of this number of the usual times.
const LONGEST_LOOK: u32 = 4;
/// Most banned agents of other racks that are remembered.
const MOST_BANNED: usize = 64;
/// A request that waits at a peer counts as much as this number of holders of a chunk.
const LINE_COST: u32 = 4;
/// Chunks of one peer that are compared.
const SAMPLES: usize = 2;

/// The source that a chunk was requested from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A peer of the rack.
    Peer(PeerNo),
    /// A source outside the rack, named by the claim table.
    Outside(Outside),
}

/// The next action of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask this peer for this chunk.
    Ask(PeerNo, Chunk),
    /// Report to the claim table how many chunks this agent takes from outside. The number replaces the one of the last
    /// claim.
    Claim {
        /// Number of chunks.
        wanted: u32,
        /// Chunks that the table takes for held in the rack, and that no peer has.
        stuck: Vec<Chunk>,
    },
    /// Exchange the sets of held chunks with this peer.
    Look(PeerNo),
    /// Report to the claim table that this agent does not answer.
    Unreachable(Source),
    /// Report to the claim table that a granted chunk did not come.
    GiveUp(Chunk, Outside),
    /// Nothing until this time, or until something happens.
    Rest(Moment),
    /// Every chunk is there.
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    chunk: Chunk,
    source: Source,
    since: Moment,
    until: Moment,
}

/// Counters of a download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DownloadCounts {
    /// Chunks from peers of the rack.
    pub from_rack: u32,
    /// Chunks from other racks.
    pub from_other_racks: u32,
    /// Chunks from the origin.
    pub from_origin: u32,
    /// Chunks that came twice.
    pub twice: u32,
    /// Requests that were not answered in time.
    pub unanswered: u32,
    /// Requests that a peer had no room for.
    pub busy: u32,
}

/// The state of one agent's download.
#[derive(Debug, Clone)]
pub struct Download {
    settings: DownloadSettings,
    done: Bits,
    asked: Bits,
    /// Chunks that are there or asked for.
    taken: Bits,
    peers: Peers,
    requests: Vec<Request>,
    /// Number of chunks in the last claim, and its time.
    claimed: Option<(u32, Moment)>,
    /// Chunks that were granted since.
    news: Vec<Step>,
    looked: Option<Moment>,
    /// Looks since a peer had something new.
    idle_looks: u32,
    banned: Vec<AgentNo>,
    /// How often the patience is doubled. Where every answer takes long, none would come otherwise.
    doublings: u32,
    /// When the patience was last doubled.
    doubled: Moment,
    counts: DownloadCounts,
    chance: Chance,
}

impl Download {
    /// A download of an image with this number of chunks with data. `held`: chunks that are there already.
    #[must_use]
    pub fn new(held: Bits, settings: DownloadSettings, seed: u64) -> Self {
        let chunks = held.chunks();
        Self {
            settings,
            taken: held.clone(),
            done: held,
            asked: Bits::new(chunks),
            peers: Peers::new(chunks),
            requests: Vec::new(),
            claimed: None,
            news: Vec::new(),
            looked: None,
            idle_looks: 0,
            banned: Vec::new(),
            doublings: 0,
            doubled: Moment::default(),
            counts: DownloadCounts::default(),
            chance: Chance::new(seed),
        }
    }

    /// Adds an agent of the same rack. `None`: there are [`crate::MOST_PEERS`] already.
    pub fn add_peer(&mut self) -> Option<PeerNo> {
        self.peers.add()
    }

    /// The chunks that are there.
    #[must_use]
    pub fn done(&self) -> &Bits {
        &self.done
    }

    /// Whether every chunk is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done.is_full()
    }

    /// Number of peers that are known to have the chunk. It decides which chunks stay in memory.
    #[must_use]
    pub fn seen(&self, chunk: Chunk) -> u16 {
        self.peers.seen(chunk)
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> DownloadCounts {
        self.counts
    }

    /// Whether no peer can be reached: the ports may be isolated from each other.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let (away, heard) = self.peers.reachable();
        !heard && away >= ALONE_AFTER
    }

    /// The requests that run.
    pub fn requests(&self) -> impl Iterator<Item = (Chunk, Source)> + '_ {
        self.requests.iter().map(|request| (request.chunk, request.source))
    }

    /// Chunks that the agent fetches from outside the rack now.
    pub fn granted_chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        let outside = |request: &&Request| matches!(request.source, Source::Outside(_));
        self.requests.iter().filter(outside).map(|request| request.chunk)
    }

    /// The claim table is a new one: the last claim is said again.
    pub fn rejoined(&mut self) {
        self.claimed = None;
    }

    /// The next step.
    pub fn step(&mut self, now: Moment) -> Step {
        self.expire(now);
        if let Some(step) = self.news.pop() {
            return step;
        }
        if self.done.is_full() {
            return Step::Done;
        }
        let in_rack = self
            .requests
            .iter()
            .filter(|request| matches!(request.source, Source::Peer(_)));
        let room =
            (in_rack.count() as u32) < self.settings.window && (self.requests.len() as u32) < self.most_requests();
        if room && let Some((peer, chunk)) = self.rarest(now).or_else(|| self.duplicate(now)) {
            self.ask(chunk, Source::Peer(peer), now, self.patience(now));
            return Step::Ask(peer, chunk);
        }
        if let Some(claim) = self.claim(now) {
            return claim;
        }
        if room && let Some(peer) = self.look(now) {
            return Step::Look(peer);
        }
        Step::Rest(self.next_event(now, room))
    }

    /// Requests at once to peers and outside.
    fn most_requests(&self) -> u32 {
        self.settings.window + self.settings.claims
    }

    fn ask(&mut self, chunk: Chunk, source: Source, since: Moment, until: Moment) {
        self.asked.add(chunk);
        self.taken.add(chunk);
        self.requests.push(Request {
            chunk,
            source,
            since,
            until,
        });
        if let Source::Peer(peer) = source
            && let Some(known) = self.peers.get_mut(peer)
        {
            known.asked += 1;
        }
    }

    fn patience(&self, now: Moment) -> Moment {
        let usual = match self.peers.pace() {
            Span::ZERO => FIRST_PATIENCE,
            pace => self.settings.least_patience.max(pace.times(PATIENCE)),
        };
        let doubled = usual.times(1 << self.doublings);
        now.plus(doubled.min(LONGEST_PATIENCE.max(usual)))
    }

    /// A request was given up. Of requests that ran at the same time, one doubles the patience.
    fn was_impatient(&mut self, since: Moment, now: Moment) {
        if since >= self.doubled && self.doublings < MOST_DOUBLINGS {
            self.doublings += 1;
            self.doubled = now;
        }
    }

    /// The rarest chunk that a peer has and that is not requested yet, and the peer with the shortest line. Only some chunks
    /// of each peer are compared, so that agents with the same view choose different ones.
    fn rarest(&mut self, now: Moment) -> Option<(PeerNo, Chunk)> {
        let count = self.peers.len();
        let first = self.chance.below(count as u32) as usize;
        let mut best: Option<((bool, u32), PeerNo, Chunk)> = None;
        for step in 0..count {
            let number = PeerNo(((first + step) % count) as u16);
            let Some(peer) = self.peers.get(number).filter(|peer| peer.may_have(now)) else {
                continue;
            };
            let slow = self.peers.is_slow(peer);
            if peer.asked >= if slow { 1 } else { self.settings.per_peer } {
                continue;
            }
            let line = u32::from(peer.load) + u32::from(peer.asked);
            let samples = (0..SAMPLES).map_while(|_| peer.have.random_outside(&self.taken, &mut self.chance));
            let cost = |chunk| (slow, u32::from(self.peers.seen(chunk)) + LINE_COST * line);
            let sample = samples
                .map(|chunk| (cost(chunk), number, chunk))
                .min_by_key(|(cost, _, _)| *cost);
            let Some(sample) = sample else {
                self.peers.has_nothing(number);
                continue;
            };
            if best.is_none_or(|(least, _, _)| sample.0 < least) {
                best = Some(sample);
            }
        }
        best.map(|(_, peer, chunk)| (peer, chunk))
    }

    /// Near the end, a chunk that is late is asked from a second peer.
    fn duplicate(&self, now: Moment) -> Option<(PeerNo, Chunk)> {
        let left = self.done.chunks() - self.done.count();
        if left > self.settings.endgame {
            return None;
        }
        // A request goes on after its chunk came from another source.
        let late = |request: &&Request| !self.done.has(request.chunk) && now.since(request.since) > self.peers.pace();
        for request in self.requests.iter().filter(late) {
            let same = self.requests.iter().filter(|other| other.chunk == request.chunk);
            let asked: Vec<Source> = same.map(|other| other.source).collect();
            if asked.len() >= MOST_DUPLICATES {
                continue;
            }
            let other = self.peers.iter().find(|(number, peer)| {
                peer.usable(now) && peer.have.has(request.chunk) && !asked.contains(&Source::Peer(*number))
            });
            if let Some((peer, _)) = other {
                return Some((peer, request.chunk));
            }
        }
        None
    }

    /// A claim, if what it says has changed.
    fn claim(&mut self, now: Moment) -> Option<Step> {
        let outside = self.granted_chunks().count() as u32;
        let left = (self.done.chunks() - self.done.count()).saturating_sub(self.requests.len() as u32);
        let most = if self.peers.len() == 0 {
            self.most_requests()
        } else {
            self.settings.claims
        };
        let wanted = most.saturating_sub(outside).min(left);
        match self.claimed {
            Some((known, since)) if known == wanted => {
                // While anything comes, the agent's view of the rack may be old. It says nothing about what is missing.
                if wanted == 0 || !self.requests.is_empty() || now.since(since) < self.settings.stuck_after {
                    return None;
                }
            }
            None if wanted == 0 => return None,
            _ => {
                self.claimed = Some((wanted, now));
                let stuck = Vec::new();
                return Some(Step::Claim { wanted, stuck });
            }
        }
        self.claimed = Some((wanted, now));
        let all = Bits::full(self.done.chunks());
        let taken = [&self.done, &self.asked];
        let unseen = all.outside(&taken).filter(|chunk| self.peers.seen(*chunk) == 0);
        let stuck = unseen.take(MOST_STUCK).collect();
        Some(Step::Claim { wanted, stuck })
    }

    fn look_rest(&self) -> Span {
        let rest = Span::micros(self.peers.pace().as_micros() / 16).max(self.settings.least_look);
        // Each peer is seen once before the looks become rarer.
        let rounds = self.idle_looks / (self.peers.len().max(1) as u32);
        rest.times(1 << rounds.min(LONGEST_LOOK))
    }

    /// The peer to look at next: the one with the oldest known set of chunks, or with none.
    fn look(&mut self, now: Moment) -> Option<PeerNo> {
        if self.looked.is_some_and(|last| now.since(last) < self.look_rest()) {
            return None;
        }
        let usable = self.peers.iter().filter(|(_, peer)| peer.usable(now));
        let (peer, _) = usable.min_by_key(|(_, peer)| peer.looked)?;
        self.looked = Some(now);
        self.idle_looks = self.idle_looks.saturating_add(1);
        self.peers.get_mut(peer)?.looked = Some(now);
        Some(peer)
    }

    /// When a step may follow although nothing has happened.
    fn next_event(&self, now: Moment, room: bool) -> Moment {
        let look = self.looked.map_or(now, |last| last).plus(self.look_rest());
        let look = (room && self.peers.any_usable(now)).then_some(look);
        let rested = self.peers.next_usable(now).filter(|_| room);
        let late = self.requests.iter().map(|request| request.until).min();
        // As in `claim`: while anything comes, the claim is not said again.
        let is_waiting = |(wanted, _): &(u32, Moment)| *wanted > 0 && self.requests.is_empty();
        let claim = self.claimed.filter(is_waiting);
        let claim = claim.map(|(_, since)| since.plus(self.settings.stuck_after));
        let duplicate = self.next_duplicate(now).filter(|_| room);
        let events = [look, rested, late, claim, duplicate].into_iter().flatten();
        let next = events.min().unwrap_or(now.plus(self.settings.stuck_after));
        next.max(now.plus(Span::micros(1)))
    }

    /// When the next of the last chunks is late.
    fn next_duplicate(&self, now: Moment) -> Option<Moment> {
        let left = self.done.chunks() - self.done.count();
        if left > self.settings.endgame {
            return None;
        }
        let running = self.requests.iter().filter(|request| !self.done.has(request.chunk));
        let late = running.map(|request| request.since.plus(self.peers.pace()).plus(Span::micros(1)));
        late.filter(|late| *late > now).min()
    }

    /// Gives up requests that take too long.
    fn expire(&mut self, now: Moment) {
        let mut at = 0;
        while let Some(request) = self.requests.get(at).copied() {
            if request.until > now {
                at += 1;
                continue;
            }
            self.counts.unanswered += 1;
            self.end(at);
            self.was_impatient(request.since, now);
            match request.source {
                Source::Peer(peer) => {
                    if self.peers.silent(peer, now.since(request.since), now) {
                        self.news.push(Step::Unreachable(request.source));
                    }
                }
                Source::Outside(outside) => {
                    if outside != Outside::Origin {
                        self.news.push(Step::Unreachable(request.source));
                    }
                    self.news.push(Step::GiveUp(request.chunk, outside));
                }
            }
        }
    }

    /// Removes a request. Its chunk may be asked for again, unless another request for it runs.
    fn end(&mut self, at: usize) {
        let request = self.requests.swap_remove(at);
        if let Source::Peer(peer) = request.source
            && let Some(known) = self.peers.get_mut(peer)
        {
            known.asked = known.asked.saturating_sub(1);
        }
        if !self.requests.iter().any(|other| other.chunk == request.chunk) {
            self.asked.remove(request.chunk);
            if !self.done.has(request.chunk) {
                self.taken.remove(request.chunk);
                self.peers.look_again(request.chunk);
            }
        }
    }

    fn find(&self, chunk: Chunk, source: Source) -> Option<usize> {
        let same = |request: &Request| request.chunk == chunk && request.source == source;
        self.requests.iter().position(same)
    }

    /// The claim table granted a chunk. Returns whether the caller should fetch it: not if it is there or on its way.
    pub fn granted(&mut self, chunk: Chunk, from: Outside, lease: Moment, now: Moment) -> bool {
        if let Some((wanted, _)) = &mut self.claimed {
            *wanted = wanted.saturating_sub(1);
        }
        let banned = matches!(from, Outside::Agent(agent) if self.banned.contains(&agent));
        if chunk.0 >= self.done.chunks() || self.done.has(chunk) || self.asked.has(chunk) || banned {
            self.news.push(Step::GiveUp(chunk, from));
            return false;
        }
        // The image servers give a chunk also after the lease.
        let until = if from == Outside::Origin {
            lease.max(now.plus(ORIGIN_PATIENCE))
        } else {
            lease.min(self.patience(now))
        };
        self.ask(chunk, Source::Outside(from), now, until);
        true
    }

    /// A peer reported its chunks and the number of requests that wait there.
    pub fn saw(&mut self, peer: PeerNo, have: &Bits, load: u8, now: Moment) {
        if self.peers.saw(peer, have, load, now) {
            self.idle_looks = 0;
        }
    }

    /// A chunk came and its content is right. Returns whether it is new.
    pub fn received(&mut self, chunk: Chunk, source: Source, now: Moment) -> bool {
        if let Some(at) = self.find(chunk, source) {
            let took = now.since(self.requests[at].since);
            if let Source::Peer(peer) = source {
                self.peers.delivered(peer, took);
            }
            self.end(at);
        }
        if !self.done.add(chunk) {
            self.counts.twice += 1;
            return false;
        }
        self.taken.add(chunk);
        self.doublings = self.doublings.saturating_sub(1);
        match source {
            Source::Peer(_) => self.counts.from_rack += 1,
            Source::Outside(Outside::Agent(_)) => self.counts.from_other_racks += 1,
            Source::Outside(Outside::Origin) => self.counts.from_origin += 1,
        }
        true
    }

    /// No connection to the peer: its requests end, and it is left in peace for a while.
    pub fn unreachable(&mut self, peer: PeerNo, now: Moment) {
        if self.shut(peer, now) {
            self.news.push(Step::Unreachable(Source::Peer(peer)));
        }
    }

    /// The peer answers, and refuses this agent: its requests end, and it is left in peace for a while. Like a peer that
    /// cannot be reached, it counts for [`Download::is_alone`], but it is not reported.
    pub fn shut_out(&mut self, peer: PeerNo, now: Moment) {
        self.shut(peer, now);
    }

    /// Ends the requests to a peer. Returns whether the peer counts as away.
    fn shut(&mut self, peer: PeerNo, now: Moment) -> bool {
        while let Some(at) = self
            .requests
            .iter()
            .position(|request| request.source == Source::Peer(peer))
        {
            self.end(at);
        }
        self.peers.silent(peer, Span::ZERO, now)
    }

    /// The source has no room, or no longer has the chunk.
    pub fn refused(&mut self, chunk: Chunk, source: Source, now: Moment) {
        let Some(at) = self.find(chunk, source) else {
            return;
        };
        self.counts.busy += 1;
        self.end(at);
        match source {
            Source::Peer(peer) => {
                let rest = Span::micros(self.peers.pace().as_micros() / 4).max(self.settings.least_look);
                self.peers.busy(peer, rest, now);
            }
            Source::Outside(outside) => self.news.push(Step::GiveUp(chunk, outside)),
        }
    }

    /// The source sent wrong bytes: nothing more is taken from it in this job. Returns whether to report it, which is once.
    pub fn lied(&mut self, chunk: Chunk, source: Source) -> bool {
        if let Some(at) = self.find(chunk, source) {
            self.end(at);
        }
        match source {
            Source::Peer(peer) => self.peers.ban(peer),
            Source::Outside(outside) => {
                self.news.push(Step::GiveUp(chunk, outside));
                let Outside::Agent(agent) = outside else {
                    return true;
                };
                let is_new = !self.banned.contains(&agent);
                if is_new && self.banned.len() < MOST_BANNED {
                    self.banned.push(agent);
                }
                is_new
            }
        }
    }
}
