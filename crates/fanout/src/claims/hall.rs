//! What the table knows about agents, racks and sources.

mod reports;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::TableSettings;
use crate::bits::Bits;
use crate::chance::Chance;
use crate::units::{AgentNo, Chunk, Moment, Outside, Span};

/// Sources that are compared for one grant.
const COMPARED: usize = 4;
/// An agent is slow if its granted chunks take this many times the mean.
const SLOW: u64 = 2;

/// A grant that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) chunk: Chunk,
    pub(super) agent: AgentNo,
    /// `None`: it was granted by a former table.
    pub(super) from: Option<Outside>,
    pub(super) since: Moment,
    pub(super) lease: Moment,
}

#[derive(Debug, Clone)]
struct Agent {
    rack: usize,
    held: Bits,
    wanted: u32,
    is_waiting: bool,
    /// Grants that it has now.
    fetching: u32,
    /// Grants that name this agent as source: now, and since it joined.
    sending: u32,
    sent: u32,
    /// The chunks for which it is its rack's source.
    source_of: Vec<Chunk>,
    pace: Span,
    /// The agent that last reported this one as silent.
    away_by: Option<AgentNo>,
    /// The agents that this one reported as senders of wrong bytes.
    accuses: Vec<AgentNo>,
    /// Whether a rack avoids it, or all do.
    is_avoided: bool,
}

#[derive(Debug, Clone)]
struct Rack {
    members: Vec<AgentNo>,
    is_alone: bool,
    /// Its only agent sent wrong bytes to others of its rack, as they say.
    is_apart: bool,
    /// Agents from which this rack takes no chunk: two of its agents, or its only one, got wrong bytes from them.
    avoids: BTreeSet<AgentNo>,
    held: Bits,
    claimed: Bits,
    claims: Vec<Claim>,
    waiting: VecDeque<AgentNo>,
    waits_since: Option<Moment>,
    /// The agent of the rack that serves a chunk to other racks.
    source: Vec<Option<AgentNo>>,
    /// Leases that ran out, for each chunk, and whether one ever did.
    ran_out: Vec<u8>,
    any_ran_out: bool,
    reopened: Option<Moment>,
}

impl Rack {
    fn new(chunks: u32) -> Self {
        Self {
            members: Vec::new(),
            is_alone: false,
            is_apart: false,
            avoids: BTreeSet::new(),
            held: Bits::new(chunks),
            claimed: Bits::new(chunks),
            claims: Vec::new(),
            waiting: VecDeque::new(),
            waits_since: None,
            source: vec![None; chunks as usize],
            ran_out: vec![0; chunks as usize],
            any_ran_out: false,
            reopened: None,
        }
    }
}

/// All agents and racks of a table.
#[derive(Debug, Clone)]
pub(super) struct Hall {
    chunks: u32,
    per_source: u32,
    agents: Vec<Option<Box<Agent>>>,
    /// Number of agents.
    present: usize,
    racks: Vec<Rack>,
    /// Racks of one agent that has gone. The next new rack takes such a place.
    left: Vec<usize>,
    /// Agents that were reported as senders of wrong bytes, each with the agents that say so.
    accused: BTreeMap<AgentNo, BTreeSet<AgentNo>>,
    /// Agents that no rack takes chunks from.
    distrusted: BTreeSet<AgentNo>,
    /// The racks that hold each chunk.
    holders: Vec<Vec<u32>>,
    /// Grants that run, for each chunk.
    running: Vec<u32>,
    /// Sources with room, for each chunk.
    free: Vec<u32>,
    /// Chunks with a source that has room.
    supply: Bits,
}

impl Hall {
    pub(super) fn new(chunks: u32, per_source: u32) -> Self {
        Self {
            chunks,
            per_source,
            agents: Vec::new(),
            present: 0,
            racks: Vec::new(),
            left: Vec::new(),
            accused: BTreeMap::new(),
            distrusted: BTreeSet::new(),
            holders: vec![Vec::new(); chunks as usize],
            running: vec![0; chunks as usize],
            free: vec![0; chunks as usize],
            supply: Bits::new(chunks),
        }
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    pub(super) fn racks(&self) -> usize {
        self.racks.len()
    }

    pub(super) fn members(&self, rack: usize) -> &[AgentNo] {
        &self.racks[rack].members
    }

    pub(super) fn is_alone(&self, rack: usize) -> bool {
        self.racks[rack].is_alone
    }

    fn agent(&self, agent: AgentNo) -> Option<&Agent> {
        self.agents.get(agent.0 as usize)?.as_deref()
    }

    fn agent_mut(&mut self, agent: AgentNo) -> Option<&mut Agent> {
        self.agents.get_mut(agent.0 as usize)?.as_deref_mut()
    }

    /// Whether there is a single agent.
    pub(super) fn is_only(&self) -> bool {
        self.present == 1
    }

    /// Grants at once of each agent.
    fn most_grants(&self, limits: &TableSettings) -> u32 {
        if self.is_only() { limits.only } else { limits.per_agent }
    }

    pub(super) fn knows(&self, agent: AgentNo) -> bool {
        self.agent(agent).is_some()
    }

    pub(super) fn rack_of(&self, agent: AgentNo) -> Option<usize> {
        self.agent(agent).map(|known| known.rack)
    }

    pub(super) fn held(&self, agent: AgentNo) -> Option<&Bits> {
        self.agent(agent).map(|known| &known.held)
    }

    pub(super) fn add_rack(&mut self) -> usize {
        let new = Rack::new(self.chunks);
        if let Some(left) = self.left.pop() {
            self.racks[left] = new;
            return left;
        }
        self.racks.push(new);
        self.racks.len() - 1
    }

    pub(super) fn add_agent(&mut self, agent: AgentNo, rack: usize) {
        let at = agent.0 as usize;
        if self.agents.len() <= at {
            self.agents.resize_with(at + 1, || None);
        }
        self.agents[at] = Some(Box::new(Agent {
            rack,
            held: Bits::new(self.chunks),
            wanted: 0,
            is_waiting: false,
            fetching: 0,
            sending: 0,
            sent: 0,
            source_of: Vec::new(),
            pace: Span::ZERO,
            away_by: None,
            accuses: Vec::new(),
            is_avoided: self.was_avoided(agent),
        }));
        self.racks[rack].members.push(agent);
        self.present += 1;
    }

    /// An agent that serves no agent: its rack holds chunks, and is no source.
    pub(super) fn add_alone(&mut self, agent: AgentNo, rack: usize, held: Bits) {
        self.add_agent(agent, rack);
        self.racks[rack].is_alone = true;
        self.racks[rack].held = held.clone();
        if let Some(known) = self.agent_mut(agent) {
            known.held = held;
        }
    }

    /// Takes what an agent holds. Returns chunks that are new in its rack, and chunks that the rack no longer has.
    pub(super) fn report(&mut self, agent: AgentNo, held: &Bits) -> (Vec<Chunk>, Vec<Chunk>) {
        let Some(known) = self.agent_mut(agent) else {
            return (Vec::new(), Vec::new());
        };
        let old = std::mem::replace(&mut known.held, held.clone());
        let rack = known.rack;
        known.away_by = None;
        if self.racks[rack].is_alone {
            self.racks[rack].held = held.clone();
            return (Vec::new(), Vec::new());
        }
        let new: Vec<Chunk> = held.outside(&[&old, &self.racks[rack].held]).collect();
        for chunk in &new {
            self.set_source(rack, *chunk, Some(agent));
        }
        let dropped: Vec<Chunk> = old.outside(&[held]).collect();
        let mut gone = Vec::new();
        for chunk in dropped {
            if self.racks[rack].source[chunk.0 as usize] == Some(agent) && !self.replace_source(rack, chunk) {
                gone.push(chunk);
            }
        }
        (new, gone)
    }

    /// Another agent of the rack becomes the source of a chunk, one that no rack avoids if possible. Returns whether one has
    /// it.
    fn replace_source(&mut self, rack: usize, chunk: Chunk) -> bool {
        let known = |agent: &AgentNo| self.agent(*agent).filter(|known| known.held.has(chunk));
        let having = self.racks[rack]
            .members
            .iter()
            .filter_map(|agent| Some((*agent, known(agent)?)));
        let other = having.min_by_key(|(_, known)| known.is_avoided).map(|(agent, _)| agent);
        self.set_source(rack, chunk, other);
        other.is_some()
    }

    fn has_room(&self, agent: AgentNo) -> bool {
        let has_room = |known: &Agent| known.sending < self.per_source;
        self.agent(agent).is_some_and(has_room) && !self.distrusted.contains(&agent)
    }

    fn set_source(&mut self, rack: usize, chunk: Chunk, source: Option<AgentNo>) {
        let at = chunk.0 as usize;
        let old = std::mem::replace(&mut self.racks[rack].source[at], source);
        if old == source {
            return;
        }
        match old {
            Some(old) => {
                if self.has_room(old) {
                    self.count_free(chunk, false);
                }
                if let Some(known) = self.agent_mut(old) {
                    known.source_of.retain(|other| *other != chunk);
                }
            }
            None => self.holders[at].push(rack as u32),
        }
        match source {
            Some(new) => {
                if self.has_room(new) {
                    self.count_free(chunk, true);
                }
                if let Some(known) = self.agent_mut(new) {
                    known.source_of.push(chunk);
                }
                self.racks[rack].held.add(chunk);
            }
            None => {
                self.holders[at].retain(|other| *other != rack as u32);
                self.racks[rack].held.remove(chunk);
            }
        }
    }

    fn count_free(&mut self, chunk: Chunk, more: bool) {
        let free = &mut self.free[chunk.0 as usize];
        *free = if more { *free + 1 } else { free.saturating_sub(1) };
        if *free > 0 {
            self.supply.add(chunk);
        } else {
            self.supply.remove(chunk);
        }
    }

    /// A grant that names the agent as source begins or ends.
    pub(super) fn sending(&mut self, agent: AgentNo, begins: bool) {
        let before = self.has_room(agent);
        let Some(known) = self.agent_mut(agent) else {
            return;
        };
        if begins {
            known.sending += 1;
            known.sent += 1;
        } else {
            known.sending = known.sending.saturating_sub(1);
        }
        let chunks = known.source_of.clone();
        let after = self.has_room(agent);
        if before != after {
            for chunk in chunks {
                self.count_free(chunk, after);
            }
        }
    }

    /// Whether no agent fetches the chunk from outside, and none holds it but such as some rack avoids.
    pub(super) fn is_nowhere(&self, chunk: Chunk) -> bool {
        let at = chunk.0 as usize;
        let Some(holders) = self.holders.get(at) else {
            return false;
        };
        let mut sources = holders.iter().filter_map(|rack| self.racks[*rack as usize].source[at]);
        self.running[at] == 0 && sources.all(|source| self.is_avoided(source))
    }

    /// Whether the rack neither has the chunk nor fetches it.
    pub(super) fn may_claim(&self, rack: usize, chunk: Chunk) -> bool {
        chunk.0 < self.chunks && !self.racks[rack].held.has(chunk) && !self.racks[rack].claimed.has(chunk)
    }

    /// Whether the agent and its rack have fewer grants than they may have.
    pub(super) fn has_place(&self, agent: AgentNo, limits: &TableSettings) -> bool {
        self.agent(agent).is_some_and(|known| {
            let of_rack = self.racks[known.rack].claims.len();
            known.fetching < self.most_grants(limits) && of_rack < limits.per_rack as usize
        })
    }

    /// Whether the agent has a grant for the chunk.
    pub(super) fn fetches(&self, agent: AgentNo, chunk: Chunk) -> bool {
        let same = |claim: &Claim| claim.agent == agent && claim.chunk == chunk;
        self.agent(agent)
            .is_some_and(|known| self.racks[known.rack].claims.iter().any(same))
    }

    pub(super) fn begin(&mut self, rack: usize, claim: Claim) {
        self.running[claim.chunk.0 as usize] += 1;
        if let Some(known) = self.agent_mut(claim.agent) {
            known.fetching += 1;
        }
        self.racks[rack].claimed.add(claim.chunk);
        self.racks[rack].claims.push(claim);
    }

    /// Ends the agent's claim of a chunk, if it has one.
    pub(super) fn end(&mut self, agent: AgentNo, chunk: Chunk) -> Option<Claim> {
        let rack = self.agent(agent)?.rack;
        let same = |claim: &Claim| claim.agent == agent && claim.chunk == chunk;
        let at = self.racks[rack].claims.iter().position(same)?;
        Some(self.end_at(rack, at))
    }

    fn end_at(&mut self, rack: usize, at: usize) -> Claim {
        let claim = self.racks[rack].claims.swap_remove(at);
        self.racks[rack].claimed.remove(claim.chunk);
        let running = &mut self.running[claim.chunk.0 as usize];
        *running = running.saturating_sub(1);
        if let Some(known) = self.agent_mut(claim.agent) {
            known.fetching = known.fetching.saturating_sub(1);
        }
        claim
    }

    /// The rack has the chunk: leases that ran out before no longer count.
    pub(super) fn served(&mut self, agent: AgentNo, chunk: Chunk) {
        if let Some(rack) = self.agent(agent).map(|known| known.rack)
            && let Some(count) = self.racks[rack].ran_out.get_mut(chunk.0 as usize)
        {
            *count = 0;
        }
    }

    pub(super) fn ran_out(&mut self, agent: AgentNo, chunk: Chunk) {
        if let Some(rack) = self.agent(agent).map(|known| known.rack) {
            let count = &mut self.racks[rack].ran_out[chunk.0 as usize];
            *count = count.saturating_add(1);
            self.racks[rack].any_ran_out = true;
        }
    }

    /// A chunk that the rack lacks and for which this many leases ran out.
    pub(super) fn in_need(&self, rack: usize, ran_out: u8) -> Option<Chunk> {
        let any = self.racks[rack].any_ran_out;
        let needs = |chunk: &Chunk| self.racks[rack].ran_out[chunk.0 as usize] >= ran_out;
        if any { self.lacks(rack).find(needs) } else { None }
    }

    /// Ends all leases before `now`.
    pub(super) fn expired(&mut self, now: Moment) -> Vec<(AgentNo, Claim)> {
        let mut expired = Vec::new();
        for rack in 0..self.racks.len() {
            while let Some(at) = self.racks[rack].claims.iter().position(|claim| claim.lease < now) {
                let claim = self.end_at(rack, at);
                expired.push((claim.agent, claim));
            }
        }
        expired
    }

    /// The rack's record of these chunks was wrong, as an agent finds them with no peer. Each rack is corrected once in two
    /// seconds, so that a lying agent costs little.
    pub(super) fn reopen(&mut self, agent: AgentNo, stuck: &[Chunk], now: Moment) -> Vec<Chunk> {
        let Some(rack) = self.agent(agent).map(|known| known.rack) else {
            return Vec::new();
        };
        let recently = |last: Moment| now.since(last) < super::LEASE_EXTRA;
        if stuck.is_empty() || self.racks[rack].is_alone || self.racks[rack].reopened.is_some_and(recently) {
            return Vec::new();
        }
        let held = |chunk: &&Chunk| self.racks[rack].held.has(**chunk);
        let reopened: Vec<Chunk> = stuck.iter().filter(held).copied().collect();
        for chunk in &reopened {
            self.racks[rack].reopened = Some(now);
            self.set_source(rack, *chunk, None);
        }
        reopened
    }

    /// An agent is gone. Returns its claims, and the chunks that its rack no longer has.
    pub(super) fn remove(&mut self, agent: AgentNo) -> Option<(Vec<Claim>, Vec<Chunk>)> {
        let rack = self.agent(agent)?.rack;
        self.racks[rack].members.retain(|other| *other != agent);
        self.racks[rack].waiting.retain(|other| *other != agent);
        let mut claims = Vec::new();
        while let Some(at) = self.racks[rack].claims.iter().position(|claim| claim.agent == agent) {
            claims.push(self.end_at(rack, at));
        }
        let chunks = self
            .agent(agent)
            .map(|known| known.source_of.clone())
            .unwrap_or_default();
        let gone = chunks
            .into_iter()
            .filter(|chunk| !self.replace_source(rack, *chunk))
            .collect();
        self.agents[agent.0 as usize] = None;
        self.present -= 1;
        if (self.racks[rack].is_alone || self.racks[rack].is_apart) && self.racks[rack].members.is_empty() {
            self.left.push(rack);
        }
        Some((claims, gone))
    }

    pub(super) fn wanted(&self, agent: AgentNo) -> u32 {
        self.agent(agent).map_or(0, |known| known.wanted)
    }

    /// An agent offers to fetch this many chunks.
    pub(super) fn wants(&mut self, agent: AgentNo, wanted: u32, now: Moment) {
        let Some(known) = self.agent_mut(agent) else {
            return;
        };
        known.wanted = wanted;
        let (rack, is_new) = (known.rack, wanted > 0 && !known.is_waiting);
        known.is_waiting |= is_new;
        if is_new {
            self.racks[rack].waiting.push_back(agent);
            self.racks[rack].waits_since.get_or_insert(now);
        }
    }

    /// The agent of the rack that gets the next grant: the first in the line with fewer grants than it may have, but a slow
    /// one only if no other such agent waits.
    pub(super) fn next_waiting(&mut self, rack: usize, limits: &TableSettings, pace: Span) -> Option<AgentNo> {
        if self.racks[rack].claims.len() >= limits.per_rack as usize {
            return None;
        }
        let most = self.most_grants(limits);
        let mut slow = None;
        for _ in 0..self.racks[rack].waiting.len() {
            let first = *self.racks[rack].waiting.front()?;
            let known = self.agent_mut(first)?;
            if known.wanted == 0 {
                known.is_waiting = false;
                self.racks[rack].waiting.pop_front();
                continue;
            }
            let has_room = known.fetching < most;
            let is_slow = pace != Span::ZERO && known.pace > pace.times(SLOW);
            if has_room && !is_slow {
                return Some(first);
            }
            if has_room {
                slow.get_or_insert(first);
            }
            self.racks[rack].waiting.rotate_left(1);
        }
        slow
    }

    /// The agent got a grant: others of its rack come first now.
    pub(super) fn granted(&mut self, rack: usize, agent: AgentNo, now: Moment) {
        if let Some(known) = self.agent_mut(agent) {
            known.wanted = known.wanted.saturating_sub(1);
        }
        let rack = &mut self.racks[rack];
        if let Some(at) = rack.waiting.iter().position(|other| *other == agent) {
            rack.waiting.remove(at);
            rack.waiting.push_back(agent);
        }
        rack.waits_since = Some(now);
    }

    /// Since when the rack waits without a grant.
    pub(super) fn waits_since(&self, rack: usize) -> Option<Moment> {
        self.racks[rack].waits_since
    }

    pub(super) fn took(&mut self, agent: AgentNo, took: Span) {
        if let Some(known) = self.agent_mut(agent) {
            known.pace = known.pace.averaged(took);
        }
    }

    /// Chunks that the rack neither has nor fetches.
    fn lacks(&self, rack: usize) -> impl Iterator<Item = Chunk> + '_ {
        let rack = &self.racks[rack];
        let chunks = (0..self.chunks).map(Chunk);
        chunks.filter(|chunk| !rack.held.has(*chunk) && !rack.claimed.has(*chunk))
    }

    /// The first chunk that the rack neither has nor fetches.
    pub(super) fn first_lack(&self, rack: usize) -> Option<Chunk> {
        self.lacks(rack).next()
    }

    /// One of `chunks` that the rack lacks.
    pub(super) fn random_lack(&self, rack: usize, chunks: &Bits, chance: &mut Chance) -> Option<Chunk> {
        let rack = &self.racks[rack];
        let lacks: Vec<Chunk> = chunks.outside(&[&rack.held, &rack.claimed]).collect();
        lacks.get(chance.below(lacks.len() as u32) as usize).copied()
    }

    /// The agent of another rack that can send a chunk to `rack` now.
    fn source(&self, rack: usize, other: u32, chunk: Chunk) -> Option<AgentNo> {
        let source = self.racks[other as usize].source[chunk.0 as usize]?;
        (self.has_room(source) && !self.racks[rack].avoids.contains(&source)).then_some(source)
    }

    /// Whether the rack takes a chunk from one of its sources with room.
    fn has_source(&self, rack: usize, chunk: Chunk) -> bool {
        let mut holders = self.holders[chunk.0 as usize].iter();
        self.racks[rack].avoids.is_empty() || holders.any(|other| self.source(rack, *other, chunk).is_some())
    }

    /// The chunk in the fewest racks that has a source with room, and of some such sources the one that sent least.
    pub(super) fn rarest_source(&self, rack: usize, chance: &mut Chance) -> Option<(Chunk, AgentNo)> {
        let own = &self.racks[rack];
        let taken = [&own.held, &own.claimed];
        let supplied = || {
            let supplied = self.supply.outside(&taken);
            supplied.filter(|chunk| self.has_source(rack, *chunk))
        };
        let rarity = |chunk: Chunk| self.holders[chunk.0 as usize].len();
        let least = supplied().map(rarity).min()?;
        // Among equally rare ones by chance, so that racks do not all want the same.
        let equals: Vec<Chunk> = supplied().filter(|chunk| rarity(*chunk) == least).collect();
        let chunk = equals[chance.below(equals.len() as u32) as usize];
        let holders = &self.holders[chunk.0 as usize];
        let first = chance.below(holders.len() as u32) as usize;
        let turned = holders[first..].iter().chain(&holders[..first]);
        let sources = turned.filter_map(|other| self.source(rack, *other, chunk));
        let source = sources
            .take(COMPARED)
            .min_by_key(|source| self.agent(*source).map_or(u32::MAX, |known| known.sent))?;
        Some((chunk, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_agent_that_was_alone_is_used_again() {
        let mut hall = Hall::new(4, 2);
        for _ in 0..100 {
            let rack = hall.add_rack();
            hall.add_alone(AgentNo(0), rack, Bits::full(4));
            assert_eq!(hall.racks(), 1);
            assert!(hall.remove(AgentNo(0)).is_some());
        }
        let rack = hall.add_rack();
        assert!(
            !hall.is_alone(rack) && hall.first_lack(rack) == Some(Chunk(0)),
            "nothing is left of it"
        );
    }
}
