//! The simulated events: their choice, and their effects on machines and replicas.

use rackwright_ground::clock;
use rackwright_lifecycle::Timestamp;

use super::world::{PlannedEvent, Running};
use super::{REPLICAS, Run, checks, process};

impl Run {
    /// The first event that can be handled now, and the replica that handles it. A replica handles one message or request of
    /// a machine at a time.
    pub(super) fn next_event(&self) -> Option<((Timestamp, u64), usize)> {
        let mut world = self.fake.world();
        let planned: Vec<_> = world.planned.iter().map(|(key, what)| (*key, what.clone())).collect();
        let is_free = |number: usize, id: &str| {
            let process = &self.processes[number];
            process.answers() && !process.busy.contains(id)
        };
        planned.into_iter().find_map(|(key, (id, planned))| {
            let candidates: Vec<usize> = match &planned {
                PlannedEvent::Connect { .. } | PlannedEvent::Request { .. } => {
                    (0..REPLICAS).filter(|n| is_free(*n, &id)).collect()
                }
                PlannedEvent::Gone { process, .. } => Some(*process).filter(|n| is_free(*n, &id)).into_iter().collect(),
                PlannedEvent::Say { .. } => match &world.machine(&id).connection {
                    Some(connection) if !is_free(connection.process, &id) => Vec::new(),
                    Some(connection) => vec![connection.process],
                    None => vec![0],
                },
                _ => vec![0],
            };
            // The choice depends on the event, not on chance: a repeated query gives the same answer.
            let spread = usize::try_from(key.1).unwrap_or(0) + usize::try_from(key.0.0 / 1000 % 7).unwrap_or(0);
            (!candidates.is_empty()).then(|| (key, candidates[spread % candidates.len()]))
        })
    }

    /// Checks the messages of the replicas and delivers them to the agents.
    pub(super) async fn receive_messages(&mut self) {
        let now = clock::now();
        let messages = self.fake.world().sent(now, &self.fake.chance);
        for sent in messages {
            let sender = &self.processes[sent.process].core.replica;
            let wrong = checks::job(&self.store, &sent, sender).await;
            let mut world = self.fake.world();
            world.wrong.extend(wrong);
            if sent.is_heard {
                let line = process::deliver(&mut world, &sent.id, *sent.message, now, &self.fake.chance);
                drop(world);
                self.note(line);
            }
        }
    }

    pub(super) fn run_event(&mut self, key: (Timestamp, u64), number: usize) {
        let now = clock::now();
        let Some((id, planned)) = self.fake.world().planned.remove(&key) else {
            return;
        };
        let mut line = format!("{id}, replica {number}: {planned:?}");
        line.truncate(150);
        self.note(line);
        let fake = self.fake.clone();
        let mut world = fake.world();
        let machine = world.machine(&id);
        let process = &mut self.processes[number];
        match planned {
            PlannedEvent::AgentUp { boot } if machine.boot == boot => world.agent_up(&id, now, &self.fake.chance),
            PlannedEvent::HostUp { boot } if machine.boot == boot => {
                machine.running = Running::Host;
                machine.has_back_door = true;
                // The customer's root may have changed the firmware settings.
                machine.is_set &= !self.fake.chance.of_1000(400);
            }
            PlannedEvent::JobEnds { boot, operation, work } if machine.boot == boot => {
                world.job_ends(&id, &operation, &work, now, &self.fake.chance);
            }
            PlannedEvent::BriefFailure => world.fail_briefly(&id, now, &self.fake.chance),
            PlannedEvent::Move => world.moves(&id, now, &self.fake.chance),
            PlannedEvent::Connect { boot } if machine.boot == boot => {
                self.figures.connections += 1;
                let former = self.connected.insert(id.clone(), number);
                self.figures.moves += u64::from(former.is_some_and(|former| former != number));
                process.connect(&id, boot);
            }
            PlannedEvent::Say { boot, message } if machine.boot == boot => {
                if let Some(connection) = &machine.connection {
                    let certificate = connection.certificate.clone();
                    process.say(&id, connection.number, &certificate, *message);
                }
            }
            PlannedEvent::Gone {
                process: of,
                number: connection,
            } => {
                world.noticed(&id, of, connection);
                process.gone(&id, connection);
            }
            PlannedEvent::Request { request, key } => {
                self.open_requests.insert((number, id.clone()), (request, key.clone()));
                self.figures.requests += 1;
                process.make_request(&id, request, key);
            }
            _ => {}
        }
    }
}
