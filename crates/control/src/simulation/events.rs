//! The simulated events: their choice, and their effects on machines and replicas.

use rackwright_lifecycle::Timestamp;

use super::world::{PlannedEvent, Running};
use super::{REPLICAS, Run, checks, process};
use crate::clock;

impl Run {
    /// The first event that can be handled now, and its replica. Each replica handles one message or wish of a machine at a
    /// time.
    pub(super) fn next_event(&self) -> Option<((Timestamp, u64), usize)> {
        let mut world = self.fake.world();
        let planned: Vec<_> = world.planned.iter().map(|(key, what)| (*key, what.clone())).collect();
        let may = |number: usize, id: &str| {
            let process = &self.processes[number];
            process.answers() && !process.busy.contains(id)
        };
        planned.into_iter().find_map(|(key, (id, planned))| {
            let takers: Vec<usize> = match &planned {
                PlannedEvent::Connect { .. } | PlannedEvent::Ask { .. } => {
                    (0..REPLICAS).filter(|n| may(*n, &id)).collect()
                }
                PlannedEvent::Gone { process, .. } => Some(*process).filter(|n| may(*n, &id)).into_iter().collect(),
                PlannedEvent::Say { .. } => match &world.machine(&id).connection {
                    Some(connection) if !may(connection.process, &id) => Vec::new(),
                    Some(connection) => vec![connection.process],
                    None => vec![0],
                },
                _ => vec![0],
            };
            // Depends on the event, not on chance: a repeated query gives the same answer.
            let spread = usize::try_from(key.1).unwrap_or(0) + usize::try_from(key.0.0 / 1000 % 7).unwrap_or(0);
            (!takers.is_empty()).then(|| (key, takers[spread % takers.len()]))
        })
    }

    /// Delivers messages to agents.
    pub(super) async fn hear(&mut self) {
        let now = clock::now();
        let sent = self.fake.world().sent(now, &self.fake.chance);
        for sent in sent {
            let sender = &self.processes[sent.process].core.replica;
            let wrong = checks::job(&self.store, &sent, sender).await;
            let mut world = self.fake.world();
            world.wrong.extend(wrong);
            if sent.is_heard {
                let line = process::told(&mut world, &sent.id, *sent.message, now, &self.fake.chance);
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
                // The customer's root may have changed them.
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
            PlannedEvent::Gone { process: of, number } => {
                world.noticed(&id, of, number);
                process.gone(&id, number);
            }
            PlannedEvent::Ask { wish, key } => {
                self.open_requests.insert((number, id.clone()), (wish, key.clone()));
                self.figures.wishes += 1;
                process.ask(&id, wish, key);
            }
            _ => {}
        }
    }
}
