//! What agents say about other agents, and which agents the racks avoid.

use super::{Agent, Hall};
use crate::units::{AgentNo, Chunk};

/// Most agents of which one agent's reports of wrong bytes count.
const MOST_ACCUSED: usize = 4;
/// Agents of at least two racks that report another one, after which no rack takes chunks from it.
const DISTRUSTED_BY: usize = 4;

impl Hall {
    /// Notes that `reporter` does not reach `agent`. Returns the other agent that says so too.
    pub(in crate::claims) fn away(&mut self, reporter: AgentNo, agent: AgentNo) -> Option<AgentNo> {
        if !self.knows(reporter) || reporter == agent {
            return None;
        }
        let first = self.agent_mut(agent)?.away_by.replace(reporter)?;
        (first != reporter).then_some(first)
    }

    /// Notes that `reporter` got wrong bytes from `agent`. Returns the reporter's rack if from now on it takes nothing from
    /// that agent: if two agents of the rack say so, or the only one beside the other agent.
    pub(in crate::claims) fn lied(&mut self, reporter: AgentNo, agent: AgentNo) -> Option<usize> {
        let limits = |known: &&mut Agent| known.accuses.contains(&agent) || known.accuses.len() < MOST_ACCUSED;
        if !self.knows(agent) || reporter == agent {
            return None;
        }
        let known = self.agent_mut(reporter).filter(limits)?;
        if !known.accuses.contains(&agent) {
            known.accuses.push(agent);
        }
        let rack = known.rack;
        self.accused.entry(agent).or_default().insert(reporter);
        self.distrust(agent);
        let others = self.racks[rack].members.iter().filter(|member| **member != agent);
        let accusing = others.clone().filter(|member| {
            let known = self.agent(**member);
            known.is_some_and(|known| known.accuses.contains(&agent))
        });
        if accusing.count() < others.count().min(2) || self.racks[rack].is_alone {
            return None;
        }
        if !self.racks[rack].avoids.insert(agent) {
            return None;
        }
        self.set_avoided(agent);
        Some(rack)
    }

    fn set_avoided(&mut self, agent: AgentNo) {
        if let Some(known) = self.agent_mut(agent) {
            known.is_avoided = true;
        }
    }

    /// No rack takes chunks from an agent that many agents of several racks report.
    fn distrust(&mut self, agent: AgentNo) {
        let Some(reporters) = self
            .accused
            .get(&agent)
            .filter(|reporters| reporters.len() >= DISTRUSTED_BY)
        else {
            return;
        };
        let mut racks = reporters.iter().filter_map(|reporter| self.rack_of(*reporter));
        let first = racks.next();
        if !racks.any(|rack| Some(rack) != first) {
            return;
        }
        let had_room = self.has_room(agent);
        self.distrusted.insert(agent);
        self.set_avoided(agent);
        let chunks = self.agent(agent).map(|known| known.source_of.clone());
        for chunk in chunks.filter(|_| had_room).into_iter().flatten() {
            self.count_free(chunk, false);
        }
    }

    /// Lets other agents of its rack give what an avoided agent gave so far. Returns these chunks.
    pub(in crate::claims) fn relieve(&mut self, agent: AgentNo) -> Vec<Chunk> {
        let Some(known) = self.agent(agent) else {
            return Vec::new();
        };
        let (rack, chunks) = (known.rack, known.source_of.clone());
        for chunk in &chunks {
            self.replace_source(rack, *chunk);
        }
        chunks
    }

    /// Whether the rack takes no chunk from the agent.
    pub(in crate::claims) fn avoids(&self, rack: usize, agent: AgentNo) -> bool {
        self.racks[rack].avoids.contains(&agent)
    }

    /// Whether the rack is that of an agent that its mates do not trust. No other agent joins it.
    pub(in crate::claims) fn is_apart(&self, rack: usize) -> bool {
        self.racks[rack].is_apart
    }

    pub(in crate::claims) fn set_apart(&mut self, rack: usize) {
        self.racks[rack].is_apart = true;
    }

    /// The number belongs to another job from now on: reports about the former one do not count.
    pub(in crate::claims) fn forget_reports(&mut self, agent: AgentNo) {
        if self.accused.remove(&agent).is_none() {
            return;
        }
        self.distrusted.remove(&agent);
        for rack in &mut self.racks {
            rack.avoids.remove(&agent);
        }
        for known in self.agents.iter_mut().flatten() {
            known.accuses.retain(|other| *other != agent);
        }
    }

    /// Whether some rack avoids the agent, or all do.
    pub(in crate::claims) fn is_avoided(&self, agent: AgentNo) -> bool {
        self.agent(agent).is_some_and(|known| known.is_avoided)
    }

    /// The same for an agent that joins again.
    pub(super) fn was_avoided(&self, agent: AgentNo) -> bool {
        self.distrusted.contains(&agent) || self.racks.iter().any(|rack| rack.avoids.contains(&agent))
    }
}
