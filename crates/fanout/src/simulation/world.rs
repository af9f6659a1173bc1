//! The network of the simulated hall.

use std::collections::VecDeque;

use super::{CHUNK_TIME, Figures, Hall, STEPS_PER_CHUNK};
use crate::{
    AgentNo, Bits, Chance, Chunk, ClaimTable, Download, DownloadSettings, Linger, LingerFacts, Moment, Outside, PeerNo,
    RackNo, Source, Step, TableSettings, UploadSettings, Uploads, linger,
};

/// Steps of a message between agents, and between an agent and the control plane.
const PEER_STEPS: u32 = 1;
const CONTROL_STEPS: u32 = 2;
/// Length of the ring of messages in steps: the longest time that an agent rests without looking.
const RING: u32 = 64;
/// Steps of a slow agent for the work of one.
const SLOW_FACTOR: u32 = 4;
/// Steps between two looks of the control plane at its leases.
const EXPIRE_STEPS: u32 = 15;
/// A run that takes this many times the time of one agent (and of the starts) has failed.
const LONGEST: u32 = 20;

/// A chunk on its way from a sender's link to a receiver's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) to: u32,
    pub(super) chunk: Chunk,
    pub(super) outside: bool,
    pub(super) left: u32,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) download: Download,
    /// The requests of other agents, by their numbers.
    pub(super) uploads: Uploads<u32, Sending>,
    pub(super) sending: Vec<Sending>,
    start: u32,
    pub(super) every: u32,
    dies: Option<u32>,
    is_liar: bool,
    state: State,
    /// The step until which the receiving half of the link is taken, and the one from which the sending half is free.
    pub(super) link_free: u32,
    pub(super) send_from: u32,
    wakes: u32,
    finished: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Coming,
    Running,
    Lingering,
    Gone,
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    Ask {
        from: u32,
        to: u32,
        chunk: Chunk,
        outside: bool,
    },
    Refused {
        from: u32,
        to: u32,
        chunk: Chunk,
        outside: bool,
    },
    Look {
        from: u32,
        to: u32,
    },
    Looked {
        from: u32,
        to: u32,
    },
    Claim {
        agent: u32,
        wanted: u32,
        stuck: Vec<Chunk>,
    },
    Done {
        agent: u32,
        chunk: Chunk,
    },
    Failed {
        agent: u32,
        chunk: Chunk,
    },
    Unreachable {
        agent: u32,
        other: u32,
    },
    Granted {
        agent: u32,
        chunk: Chunk,
        from: Outside,
        lease: Moment,
    },
    SentWrongBytes {
        agent: u32,
        other: u32,
    },
    Join {
        agent: u32,
    },
    Wake {
        agent: u32,
    },
    Chunk {
        from: Option<u32>,
        sending: Sending,
    },
}

pub(super) struct World<'a> {
    pub(super) hall: &'a Hall,
    pub(super) nodes: Vec<Node>,
    table: ClaimTable,
    ring: Vec<Vec<Message>>,
    pub(super) step: u32,
    pub(super) origin: VecDeque<Sending>,
    unfinished: u32,
    rack_unfinished: Vec<u32>,
    figures: Figures,
    grants_open: bool,
    origin_before: u64,
}

fn moment(step: u32) -> Moment {
    Moment::micros(u64::from(step) * CHUNK_TIME.as_micros() / u64::from(STEPS_PER_CHUNK))
}

/// Runs a hall until every agent that lives has the image.
#[must_use]
pub fn run(hall: &Hall) -> Figures {
    let mut world = World::new(hall);
    let image = hall.chunks * STEPS_PER_CHUNK;
    let last = image * (LONGEST + hall.spread);
    let lost_at = image / 100 * hall.lose_table_percent;
    while world.unfinished > 0 && world.step < last {
        world.step += 1;
        if lost_at > 0 && world.step == lost_at {
            world.lose_table();
        }
        world.lives();
        let mut due = std::mem::take(&mut world.ring[(world.step % RING) as usize]);
        for message in due.drain(..) {
            world.deliver(message);
        }
        world.send();
        world.control();
    }
    world.finish()
}

impl<'a> World<'a> {
    fn new(hall: &'a Hall) -> Self {
        let mut chance = Chance::new(hall.seed);
        let image = hall.chunks * STEPS_PER_CHUNK;
        let settings = DownloadSettings::default();
        let nodes = (0..hall.agents).map(|number| {
            let dies = chance.happens(hall.die_percent).then(|| 1 + chance.below(image));
            let start = 1 + chance.below(hall.spread * image);
            let mut download = Download::new(
                Bits::new(hall.chunks),
                settings.clone(),
                hall.seed.wrapping_mul(0x1_0001).wrapping_add(u64::from(number)),
            );
            let first = number - number % hall.rack;
            for _ in first + 1..(first + hall.rack).min(hall.agents) {
                download.add_peer();
            }
            Node {
                download,
                uploads: Uploads::new(UploadSettings::default()),
                sending: Vec::new(),
                start,
                every: if chance.happens(hall.slow_percent) {
                    SLOW_FACTOR
                } else {
                    1
                },
                dies: dies.map(|after| start + after),
                // One at least, if there are any.
                is_liar: chance.below(1000) < hall.liars_per_mille || (number == 1 && hall.liars_per_mille > 0),
                state: State::Coming,
                link_free: 0,
                send_from: 0,
                wakes: u32::MAX,
                finished: 0,
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let racks = hall.agents.div_ceil(hall.rack);
        let members = |rack: u32| hall.rack.min(hall.agents - rack * hall.rack);
        Self {
            table: Self::table(hall),
            ring: vec![Vec::new(); RING as usize],
            step: 0,
            origin: VecDeque::new(),
            unfinished: hall.agents,
            rack_unfinished: (0..racks).map(members).collect(),
            figures: Figures::new(hall),
            grants_open: false,
            origin_before: 0,
            nodes,
            hall,
        }
    }

    fn table(hall: &Hall) -> ClaimTable {
        let settings = TableSettings {
            expected: CHUNK_TIME.times(4),
            ..TableSettings::default()
        };
        ClaimTable::new(hall.chunks, settings, hall.seed)
    }

    fn rack_of(&self, agent: u32) -> u32 {
        agent / self.hall.rack
    }

    /// The number of `other` in the list of `agent`, which does not contain the agent itself.
    fn peer_no(&self, agent: u32, other: u32) -> PeerNo {
        let place = other % self.hall.rack;
        PeerNo((place - u32::from(other > agent)) as u16)
    }

    fn agent_at(&self, agent: u32, peer: PeerNo) -> u32 {
        let (own, place) = (agent % self.hall.rack, u32::from(peer.0));
        agent - own + place + u32::from(place >= own)
    }

    pub(super) fn post(&mut self, steps: u32, message: Message) {
        let at = (self.step + steps.clamp(1, RING - 1)) % RING;
        self.ring[at as usize].push(message);
    }

    pub(super) fn is_up(&self, agent: u32) -> bool {
        matches!(self.nodes[agent as usize].state, State::Running | State::Lingering)
    }

    /// Starts, deaths and ends of lingering.
    fn lives(&mut self) {
        let faults = self.hall.die_percent > 0 || self.hall.spread > 0;
        if !faults && self.step > 1 {
            return;
        }
        for number in 0..self.hall.agents {
            let node = &self.nodes[number as usize];
            match node.state {
                State::Coming if node.start <= self.step => {
                    self.nodes[number as usize].state = State::Running;
                    self.post(CONTROL_STEPS, Message::Join { agent: number });
                }
                State::Running if node.dies.is_some_and(|at| at <= self.step) => self.die(number),
                State::Lingering => self.linger(number),
                _ => {}
            }
        }
    }

    fn die(&mut self, number: u32) {
        let rack = self.rack_of(number) as usize;
        let node = &mut self.nodes[number as usize];
        node.state = State::Gone;
        node.sending.clear();
        self.figures.died += 1;
        self.unfinished -= 1;
        self.rack_unfinished[rack] -= 1;
    }

    fn linger(&mut self, number: u32) {
        let rack = self.rack_of(number);
        let own = self.nodes[number as usize].finished;
        let first = rack * self.hall.rack;
        let mates = first..(first + self.hall.rack).min(self.hall.agents);
        let later = mates.filter(|mate| {
            let node = &self.nodes[*mate as usize];
            node.state == State::Lingering && (node.finished, *mate) > (own, number)
        });
        let facts = LingerFacts {
            unfinished_in_rack: self.rack_unfinished[rack as usize],
            later_holders: later.count() as u32,
            waited: moment(self.step).since(moment(own)),
            holds_all: true,
            called_off: false,
        };
        // Without spread starts everyone is there, and the last ones of a rack are served to their end.
        if self.hall.spread > 0 && linger(&facts) == Linger::Leave && self.nodes[number as usize].sending.is_empty() {
            self.nodes[number as usize].state = State::Gone;
            self.figures.lingered_steps += u64::from(self.step - own);
            self.table.lost(AgentNo(number));
        }
    }

    fn lose_table(&mut self) {
        self.origin_before += self.table.origin().chunks;
        self.table = Self::table(self.hall);
        // The streams of the agents break, and they come back one after the other within two chunks' time.
        for number in 0..self.hall.agents {
            if self.is_up(number) {
                let steps = CONTROL_STEPS + number % (2 * STEPS_PER_CHUNK);
                self.post(steps, Message::Join { agent: number });
            }
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Ask {
                from,
                to,
                chunk,
                outside,
            } => self.asked(from, to, chunk, outside),
            Message::Refused {
                from,
                to,
                chunk,
                outside,
            } => {
                if !outside {
                    self.saw(to, from);
                }
                let source = self.source(to, from, outside);
                self.nodes[to as usize]
                    .download
                    .refused(chunk, source, moment(self.step));
                self.decide(to);
            }
            Message::Look { from, to } if self.is_up(to) => {
                self.saw(to, from);
                self.post(PEER_STEPS, Message::Looked { from: to, to: from });
            }
            Message::Look { .. } => {}
            Message::Looked { from, to } => {
                self.saw(to, from);
                self.decide(to);
            }
            Message::Granted {
                agent,
                chunk,
                from,
                lease,
            } => self.granted(agent, chunk, from, lease),
            Message::Chunk { from, sending } => self.arrived(from, sending),
            Message::Wake { agent } => {
                if self.nodes[agent as usize].wakes == self.step {
                    self.nodes[agent as usize].wakes = u32::MAX;
                    self.decide(agent);
                }
            }
            other => self.at_control_plane(other),
        }
    }

    fn source(&self, to: u32, from: u32, outside: bool) -> Source {
        if outside {
            Source::Outside(Outside::Agent(AgentNo(from)))
        } else {
            Source::Peer(self.peer_no(to, from))
        }
    }

    /// Updates what `agent` knows about `other`, by a message that has just arrived.
    fn saw(&mut self, agent: u32, other: u32) {
        if agent == other || !self.is_up(agent) {
            return;
        }
        let peer = self.peer_no(agent, other);
        let (low, high) = self.nodes.split_at_mut(agent.max(other) as usize);
        let (own, mate) = if agent < other {
            (&mut low[agent as usize], &high[0])
        } else {
            (&mut high[0], &low[other as usize])
        };
        own.download
            .saw(peer, mate.download.done(), mate.uploads.load(), moment(self.step));
    }

    fn asked(&mut self, from: u32, to: u32, chunk: Chunk, outside: bool) {
        if !self.is_up(to) {
            return;
        }
        if !outside {
            self.saw(to, from);
        }
        let node = &mut self.nodes[to as usize];
        let left = STEPS_PER_CHUNK;
        let request = Sending {
            to: from,
            chunk,
            outside,
            left,
        };
        let has = node.download.done().has(chunk);
        if !has || node.uploads.offer(from, request, outside).is_err() {
            self.post(
                PEER_STEPS,
                Message::Refused {
                    from: to,
                    to: from,
                    chunk,
                    outside,
                },
            );
            return;
        }
        self.fill(to);
    }

    /// Takes requests from the line while the link has room.
    pub(super) fn fill(&mut self, agent: u32) {
        let node = &mut self.nodes[agent as usize];
        let held = node.download.done().count();
        while let Some((_, next)) = node.uploads.next(held) {
            node.sending.push(next);
        }
    }

    fn granted(&mut self, agent: u32, chunk: Chunk, from: Outside, lease: Moment) {
        if !self.is_up(agent) {
            return;
        }
        let now = moment(self.step);
        self.figures.grants += 1;
        if self.nodes[agent as usize].download.granted(chunk, from, lease, now) {
            match from {
                Outside::Origin => self.origin.push_back(Sending {
                    to: agent,
                    chunk,
                    outside: true,
                    left: STEPS_PER_CHUNK,
                }),
                Outside::Agent(source) => {
                    let ask = Message::Ask {
                        from: agent,
                        to: source.0,
                        chunk,
                        outside: true,
                    };
                    self.post(PEER_STEPS, ask);
                }
            }
        }
        self.decide(agent);
    }

    fn at_control_plane(&mut self, message: Message) {
        let now = moment(self.step);
        self.figures.calls += 1;
        let (agent, known) = match message {
            Message::Claim { agent, wanted, stuck } => {
                let held = self.nodes[agent as usize].download.done();
                (agent, self.table.claim(AgentNo(agent), wanted, held, &stuck, now))
            }
            Message::Done { agent, chunk } => {
                let held = self.nodes[agent as usize].download.done();
                (agent, self.table.done(AgentNo(agent), chunk, held, now))
            }
            Message::Failed { agent, chunk } => {
                self.table.failed(AgentNo(agent), chunk);
                (agent, true)
            }
            Message::Unreachable { agent, other } => {
                self.table.away(AgentNo(agent), AgentNo(other));
                (agent, true)
            }
            Message::SentWrongBytes { agent, other } => {
                self.table.lied(AgentNo(agent), AgentNo(other), now);
                (agent, true)
            }
            Message::Join { agent } => {
                if self.is_up(agent) {
                    let node = &self.nodes[agent as usize].download;
                    let fetching: Vec<Chunk> = node.granted_chunks().collect();
                    let rack = RackNo(self.rack_of(agent));
                    self.table.join(AgentNo(agent), rack, node.done(), &fetching, now);
                    self.nodes[agent as usize].download.rejoined();
                    self.decide(agent);
                }
                (agent, true)
            }
            _ => return,
        };
        self.grants_open = true;
        if !known && self.is_up(agent) {
            self.post(CONTROL_STEPS, Message::Join { agent });
        }
    }

    fn control(&mut self) {
        let now = moment(self.step);
        if self.step.is_multiple_of(EXPIRE_STEPS) {
            self.table.expire(now);
            self.grants_open = true;
        }
        if std::mem::take(&mut self.grants_open) {
            for grant in self.table.grants(now) {
                let (agent, chunk) = (grant.agent.0, grant.chunk);
                let (from, lease) = (grant.from, grant.lease);
                self.post(
                    CONTROL_STEPS,
                    Message::Granted {
                        agent,
                        chunk,
                        from,
                        lease,
                    },
                );
            }
        }
    }

    fn arrived(&mut self, from: Option<u32>, sending: Sending) {
        let (to, chunk) = (sending.to, sending.chunk);
        if self.nodes[to as usize].state != State::Running {
            return;
        }
        let source = from.map_or(Source::Outside(Outside::Origin), |from| {
            self.source(to, from, sending.outside)
        });
        if let Some(from) = from
            && !sending.outside
        {
            self.saw(to, from);
        }
        if from.is_some_and(|from| self.nodes[from as usize].is_liar) {
            let reported = self.nodes[to as usize].download.lied(chunk, source);
            self.figures.lies += 1;
            self.figures.reports += u64::from(reported);
            if reported && let Some(other) = from {
                self.post(CONTROL_STEPS, Message::SentWrongBytes { agent: to, other });
            }
            self.decide(to);
            return;
        }
        self.figures.across += u64::from(sending.outside);
        self.nodes[to as usize]
            .download
            .received(chunk, source, moment(self.step));
        // With more chunks, more requests are answered at once.
        self.fill(to);
        if sending.outside {
            self.post(CONTROL_STEPS, Message::Done { agent: to, chunk });
        }
        self.decide(to);
    }

    fn decide(&mut self, agent: u32) {
        if self.nodes[agent as usize].state != State::Running {
            return;
        }
        let now = moment(self.step);
        loop {
            let step = self.nodes[agent as usize].download.step(now);
            self.figures.decisions += 1;
            match step {
                Step::Ask(peer, chunk) => {
                    let to = self.agent_at(agent, peer);
                    self.post(
                        PEER_STEPS,
                        Message::Ask {
                            from: agent,
                            to,
                            chunk,
                            outside: false,
                        },
                    );
                }
                Step::Look(peer) => {
                    let to = self.agent_at(agent, peer);
                    self.figures.looks += 1;
                    self.post(PEER_STEPS, Message::Look { from: agent, to });
                }
                Step::Claim { wanted, stuck } => {
                    self.post(CONTROL_STEPS, Message::Claim { agent, wanted, stuck });
                }
                Step::Unreachable(source) => {
                    let other = match source {
                        Source::Peer(peer) => self.agent_at(agent, peer),
                        Source::Outside(Outside::Agent(other)) => other.0,
                        Source::Outside(Outside::Origin) => continue,
                    };
                    self.post(CONTROL_STEPS, Message::Unreachable { agent, other });
                }
                Step::GiveUp(chunk, _) => self.post(CONTROL_STEPS, Message::Failed { agent, chunk }),
                Step::Rest(until) => return self.rest(agent, until),
                Step::Done => return self.done(agent),
            }
        }
    }

    fn rest(&mut self, agent: u32, until: Moment) {
        let wait = until.since(moment(self.step)).as_micros() * u64::from(STEPS_PER_CHUNK);
        let steps = wait.div_ceil(CHUNK_TIME.as_micros()).clamp(1, u64::from(RING - 1)) as u32;
        let at = self.step + steps;
        let node = &mut self.nodes[agent as usize];
        if node.wakes <= at && node.wakes > self.step {
            return;
        }
        node.wakes = at;
        self.post(steps, Message::Wake { agent });
    }

    fn done(&mut self, agent: u32) {
        let rack = self.rack_of(agent) as usize;
        let node = &mut self.nodes[agent as usize];
        node.state = State::Lingering;
        node.finished = self.step;
        self.unfinished -= 1;
        self.rack_unfinished[rack] -= 1;
        self.figures.finished(self.step - node.start, node.every > 1);
    }

    fn finish(mut self) -> Figures {
        let racks = u64::from(self.hall.agents.div_ceil(self.hall.rack));
        self.figures.unfinished = self.unfinished;
        self.figures.origin = self.origin_before + self.table.origin().chunks;
        self.figures.racks = racks;
        for node in &self.nodes {
            let counts = node.download.counts();
            self.figures.twice += u64::from(counts.twice);
            self.figures.unanswered += u64::from(counts.unanswered);
            self.figures.busy += u64::from(counts.busy);
            self.figures.received += u64::from(node.download.done().count());
        }
        self.figures
    }
}
