//! The claim table of one image: which chunk a rack fetches from outside, from where, and until when.
//!
//! The table is soft state in memory. Agents tell with each message what they hold, so that a new table learns it again; a
//! table that errs costs traffic, never correctness. A chunk enters a rack once: the first agent with room gets a **grant**
//! for it, and the others of the rack find it there. The origin gives a chunk once; then the grants name agents of racks
//! that hold it. Grants go to the rarest chunk first.

mod hall;

use std::collections::{BTreeMap, BTreeSet};

use crate::bits::Bits;
use crate::chance::Chance;
use crate::units::{AgentNo, Chunk, Moment, Outside, RackNo, Span};
use hall::{Claim, Hall};

/// Limits of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSettings {
    /// Grants at once that name the same agent as source.
    pub per_source: u32,
    /// Grants at once that name the origin.
    pub origin_at_once: u32,
    /// Grants at once of a rack.
    pub per_rack: u32,
    /// Grants at once of an agent, whatever number it asks for.
    pub per_agent: u32,
    /// Grants at once of the only agent of the image. The origin gives it as many chunks at once.
    pub only: u32,
    /// Most agents of a rack. A larger one, or one without a name, is divided.
    pub rack_size: u32,
    /// Copies that the origin gives before only claims in need get chunks from it, in hundredths of the image.
    pub origin_budget_percent: u32,
    /// Time that a granted chunk is expected to take before the first one has come.
    pub expected: Span,
}

impl Default for TableSettings {
    fn default() -> Self {
        Self {
            per_source: 2,
            origin_at_once: 4,
            per_rack: 16,
            per_agent: 2,
            only: 6,
            rack_size: 48,
            origin_budget_percent: 150,
            expected: Span::seconds(1),
        }
    }
}

/// What is added to a lease of twice the expected time.
const LEASE_EXTRA: Span = Span::seconds(2);
/// The longest expected time that leases which ran out lead to.
const LONGEST_PACE: Span = Span::seconds(30);
/// Most agents of a table.
const MOST_AGENTS: u32 = 1 << 20;
/// Leases that ran out, after which a claim may go to the origin whatever its budget is.
const NEED: u8 = 2;

/// The right and the duty to fetch a chunk from outside the rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The agent that fetches the chunk.
    pub agent: AgentNo,
    pub chunk: Chunk,
    /// The source of the chunk.
    pub from: Outside,
    /// The end of the grant. After this time another agent may get the same grant.
    pub lease: Moment,
}

/// Counts of the chunks that the origin delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OriginCounts {
    /// All chunks.
    pub chunks: u64,
    /// Of these, chunks that the origin had delivered before.
    pub again: u64,
    /// Of these, chunks for agents that reach no peer.
    pub for_alone: u64,
}

/// The table of one image.
#[derive(Debug, Clone)]
pub struct ClaimTable {
    settings: TableSettings,
    hall: Hall,
    /// Groups of agents of each rack, by the rack's own number.
    groups: BTreeMap<RackNo, Vec<usize>>,
    /// For each agent that counted as lost by reports, the agents that reported it. Each of them is believed once.
    believed: BTreeMap<AgentNo, BTreeSet<AgentNo>>,
    origin: OriginCounts,
    origin_running: u32,
    /// Chunks that the origin has not given, and that no agent holds or fetches; agents that a rack avoids do not count.
    unserved: Bits,
    /// Mean time from a grant to its end.
    pace: Span,
    /// The rack that gets the next grant.
    turn: usize,
    chance: Chance,
}

impl ClaimTable {
    /// The table of an image with this number of chunks with data.
    #[must_use]
    pub fn new(chunks: u32, settings: TableSettings, seed: u64) -> Self {
        Self {
            hall: Hall::new(chunks, settings.per_source),
            groups: BTreeMap::new(),
            believed: BTreeMap::new(),
            origin: OriginCounts::default(),
            origin_running: 0,
            unserved: Bits::full(chunks),
            pace: Span::ZERO,
            turn: 0,
            chance: Chance::new(seed),
            settings,
        }
    }

    /// The counts of the origin so far.
    #[must_use]
    pub fn origin(&self) -> OriginCounts {
        self.origin
    }

    /// An agent begins or returns, with the chunks that it holds and those that it fetches from outside. Of the latter, as many
    /// count as the agent and its rack may have grants. Returns the agents of its rack; none, if the table is full.
    pub fn join(
        &mut self,
        agent: AgentNo,
        rack: RackNo,
        held: &Bits,
        fetching: &[Chunk],
        now: Moment,
    ) -> Option<&[AgentNo]> {
        if agent.0 >= MOST_AGENTS || held.chunks() != self.hall.chunks() {
            return None;
        }
        let own = self.hall.rack_of(agent);
        if let Some(group) = own.filter(|group| self.groups.get(&rack).is_some_and(|groups| groups.contains(group))) {
            // Only its stream broke: its grants go on.
            self.report(agent, held);
            self.hall.wants(agent, 0, now);
            return Some(self.hall.members(group));
        }
        self.remove(agent);
        let group = self.group_for(agent, rack);
        self.hall.add_agent(agent, group);
        self.report(agent, held);
        for chunk in fetching {
            // Where it comes from is not known to this table. No source is charged for it.
            if self.hall.has_place(agent, &self.settings) && self.hall.may_claim(group, *chunk) {
                self.unserved.remove(*chunk);
                let lease = self.lease(now);
                self.hall.begin(
                    group,
                    Claim {
                        chunk: *chunk,
                        agent,
                        from: None,
                        since: now,
                        lease,
                    },
                );
            }
        }
        Some(self.hall.members(group))
    }

    /// The group that an agent of this rack joins.
    fn group_for(&mut self, agent: AgentNo, rack: RackNo) -> usize {
        let size = self.settings.rack_size.max(1) as usize;
        let groups = self.groups.entry(rack).or_default();
        let is_avoided = groups.iter().any(|group| self.hall.avoids(*group, agent));
        let is_open = |group: &usize| self.hall.members(*group).len() < size && !self.hall.is_apart(*group);
        let open = groups.iter().copied().find(is_open).filter(|_| !is_avoided);
        open.unwrap_or_else(|| {
            let new = self.hall.add_rack();
            if is_avoided {
                self.hall.set_apart(new);
            }
            groups.push(new);
            new
        })
    }

    /// Whether the agent fetches the chunk from outside, with a grant of this table or of a former one.
    #[must_use]
    pub fn fetches(&self, agent: AgentNo, chunk: Chunk) -> bool {
        self.hall.fetches(agent, chunk)
    }

    /// An agent reaches no peer: it gets every chunk from the origin, and serves no agent.
    pub fn alone(&mut self, agent: AgentNo) {
        let Some(held) = self.hall.held(agent).cloned() else {
            return;
        };
        self.remove(agent);
        let group = self.hall.add_rack();
        self.hall.add_alone(agent, group, held);
    }

    fn lease(&self, now: Moment) -> Moment {
        let expected = if self.pace == Span::ZERO {
            self.settings.expected
        } else {
            self.pace
        };
        now.plus(expected.times(2).plus(LEASE_EXTRA))
    }

    /// Replaces the set of chunks that an agent holds for others.
    fn report(&mut self, agent: AgentNo, held: &Bits) {
        let (new, gone) = self.hall.report(agent, held);
        if !self.hall.is_avoided(agent) {
            for chunk in new {
                self.unserved.remove(chunk);
            }
        }
        self.free_again(&gone);
    }

    /// Chunks that no agent holds or fetches come from the origin again.
    fn free_again(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            if self.hall.is_nowhere(*chunk) {
                self.unserved.add(*chunk);
            }
        }
    }

    /// An agent would take `wanted` chunks from outside. `stuck`: chunks that it finds with no peer. Returns whether the
    /// table knows the agent; if not, it has to join again.
    pub fn claim(&mut self, agent: AgentNo, wanted: u32, held: &Bits, stuck: &[Chunk], now: Moment) -> bool {
        if !self.hall.knows(agent) || held.chunks() != self.hall.chunks() {
            return false;
        }
        self.report(agent, held);
        self.hall.wants(agent, wanted, now);
        let reopened = self.hall.reopen(agent, stuck, now);
        self.free_again(&reopened);
        true
    }

    /// A granted chunk has come.
    pub fn done(&mut self, agent: AgentNo, chunk: Chunk, held: &Bits, now: Moment) -> bool {
        if !self.hall.knows(agent) || held.chunks() != self.hall.chunks() {
            return false;
        }
        if let Some(claim) = self.hall.end(agent, chunk) {
            self.release(&claim);
            let took = now.since(claim.since);
            self.pace = self.pace.averaged(took);
            self.hall.took(agent, took);
        }
        self.report(agent, held);
        self.hall.served(agent, chunk);
        // An agent that serves none, or did not keep the chunk, leaves it to others to fetch.
        self.free_again(&[chunk]);
        true
    }

    /// A granted chunk has not come.
    pub fn failed(&mut self, agent: AgentNo, chunk: Chunk) {
        if let Some(claim) = self.hall.end(agent, chunk) {
            self.ran_out(agent, &claim);
        }
    }

    fn release(&mut self, claim: &Claim) {
        match claim.from {
            Some(Outside::Origin) => self.origin_running = self.origin_running.saturating_sub(1),
            Some(Outside::Agent(source)) => self.hall.sending(source, false),
            None => {}
        }
    }

    fn ran_out(&mut self, agent: AgentNo, claim: &Claim) {
        self.release(claim);
        self.hall.ran_out(agent, claim.chunk);
        self.free_again(&[claim.chunk]);
    }

    /// An agent does not get answers from another one. If two say so, the table takes the other one for lost until its next
    /// message. Each agent is believed once about another one.
    pub fn away(&mut self, reporter: AgentNo, agent: AgentNo) {
        if self
            .believed
            .get(&agent)
            .is_some_and(|before| before.contains(&reporter))
        {
            return;
        }
        if let Some(first) = self.hall.away(reporter, agent) {
            self.believed.entry(agent).or_default().extend([first, reporter]);
            self.remove(agent);
        }
    }

    /// An agent got wrong bytes from another one. If two agents of a rack say so, or the only one beside the other agent,
    /// the rack takes nothing from the other agent any more. If it is of the same rack, it becomes a rack of its own. Other
    /// racks still take chunks from it, until four agents of at least two racks say so. What it alone holds may come from the
    /// origin once more.
    pub fn lied(&mut self, reporter: AgentNo, agent: AgentNo, now: Moment) {
        let rack = self.hall.lied(reporter, agent);
        if self.hall.is_avoided(agent) {
            let given = self.hall.relieve(agent);
            self.free_again(&given);
        }
        if let Some(rack) = rack.filter(|rack| self.hall.rack_of(agent) == Some(*rack)) {
            self.set_apart(agent, rack, now);
        }
    }

    /// An agent leaves its group, and becomes one of its own.
    fn set_apart(&mut self, agent: AgentNo, group: usize, now: Moment) {
        let Some(held) = self.hall.held(agent).cloned() else {
            return;
        };
        let wanted = self.hall.wanted(agent);
        self.remove(agent);
        let new = self.hall.add_rack();
        self.hall.set_apart(new);
        self.hall.add_agent(agent, new);
        if let Some(groups) = self.groups.values_mut().find(|groups| groups.contains(&group)) {
            groups.push(new);
        }
        self.report(agent, &held);
        self.hall.wants(agent, wanted, now);
    }

    /// An agent is gone, with everything that it holds. Its number may return with another job.
    pub fn lost(&mut self, agent: AgentNo) {
        self.remove(agent);
        self.hall.forget_reports(agent);
        self.believed.remove(&agent);
    }

    fn remove(&mut self, agent: AgentNo) {
        let apart = self.hall.rack_of(agent).filter(|rack| self.hall.is_apart(*rack));
        let Some((claims, gone)) = self.hall.remove(agent) else {
            return;
        };
        if let Some(apart) = apart {
            self.groups
                .values_mut()
                .for_each(|groups| groups.retain(|group| *group != apart));
        }
        for claim in &claims {
            self.release(claim);
        }
        let own: Vec<Chunk> = claims.iter().map(|claim| claim.chunk).collect();
        self.free_again(&own);
        self.free_again(&gone);
    }

    /// Ends the leases that ran out. Where the origin takes longer than a lease, the next leases are longer.
    pub fn expire(&mut self, now: Moment) {
        for (agent, claim) in self.hall.expired(now) {
            if claim.from == Some(Outside::Origin) {
                let waited = now.since(claim.since).min(LONGEST_PACE);
                self.pace = Span::micros(self.pace.as_micros().midpoint(waited.as_micros()));
            }
            self.ran_out(agent, &claim);
        }
    }

    /// Grants that are possible now, one for each rack in turn.
    pub fn grants(&mut self, now: Moment) -> Vec<Grant> {
        let mut grants = Vec::new();
        let racks = self.hall.racks();
        let mut idle = 0;
        while idle < racks {
            self.turn = (self.turn + 1) % racks;
            match self.grant(self.turn, now) {
                Some(grant) => {
                    grants.push(grant);
                    idle = 0;
                }
                None => idle += 1,
            }
        }
        grants
    }

    fn grant(&mut self, rack: usize, now: Moment) -> Option<Grant> {
        let agent = self.hall.next_waiting(rack, &self.settings, self.pace)?;
        let (chunk, from) = self.choose(rack, now)?;
        match from {
            Outside::Origin => {
                self.origin_running += 1;
                self.origin.chunks += 1;
                self.origin.again += u64::from(!self.unserved.has(chunk));
                self.origin.for_alone += u64::from(self.hall.is_alone(rack));
            }
            Outside::Agent(source) => self.hall.sending(source, true),
        }
        self.unserved.remove(chunk);
        let lease = self.lease(now);
        let claim = Claim {
            chunk,
            agent,
            from: Some(from),
            since: now,
            lease,
        };
        self.hall.begin(rack, claim);
        self.hall.granted(rack, agent, now);
        Some(Grant {
            agent,
            chunk,
            from,
            lease,
        })
    }

    /// The rarest chunk that the rack lacks, and a source with room.
    fn choose(&mut self, rack: usize, now: Moment) -> Option<(Chunk, Outside)> {
        let is_only = self.hall.is_only();
        let places = self.settings.origin_at_once;
        let places = if is_only {
            places.max(self.settings.only)
        } else {
            places
        };
        let origin_free = self.origin_running < places;
        let from_origin = |chunk| (chunk, Outside::Origin);
        if self.hall.is_alone(rack) {
            // The first copy of a chunk comes first: it feeds all others.
            let has_share = is_only || self.unserved.is_empty() || self.origin_running * 2 < places;
            let free = origin_free && has_share;
            return self.hall.first_lack(rack).filter(|_| free).map(from_origin);
        }
        if origin_free {
            let chunk = self.hall.in_need(rack, NEED);
            // The first copy goes to agents that pass it on to their racks.
            let first = (!self.hall.is_apart(rack)).then_some(&self.unserved);
            let chance = &mut self.chance;
            if let Some(chunk) = chunk.or_else(|| self.hall.random_lack(rack, first?, chance)) {
                return Some(from_origin(chunk));
            }
        }
        if let Some((chunk, source)) = self.hall.rarest_source(rack, &mut self.chance) {
            return Some((chunk, Outside::Agent(source)));
        }
        let budget = u64::from(self.hall.chunks()) * u64::from(self.settings.origin_budget_percent) / 100;
        let starves = self
            .hall
            .waits_since(rack)
            .is_some_and(|since| self.lease(since) <= now);
        let helps = origin_free && starves && self.origin.chunks < budget;
        self.hall.first_lack(rack).filter(|_| helps).map(from_origin)
    }
}
