//! What the links of the simulated hall carry.

use super::STEPS_PER_CHUNK;
use super::world::{Message, Sending, World};

/// Eighths of a chunk that wait in the switch for a receiver: 1 MiB.
const SWITCH_BUFFER: u32 = STEPS_PER_CHUNK / 4;

impl World<'_> {
    /// One eighth of a chunk on each link. The order of the senders changes, as receivers take from the first.
    pub(super) fn send(&mut self) {
        self.send_of_origin();
        let count = self.hall.agents;
        let turn = (u64::from(self.step) * 7919 % u64::from(count)) as u32;
        for step in 0..count {
            let agent = (turn + step) % count;
            let node = &self.nodes[agent as usize];
            if !node.sending.is_empty() && node.send_from <= self.step {
                self.send_of(agent);
            }
        }
    }

    /// The origin sends one chunk after the other; while a receiver's link is taken, the next one.
    fn send_of_origin(&mut self) {
        for at in 0..self.origin.len() {
            let sending = self.origin[at];
            if !self.is_up(sending.to) {
                self.origin.remove(at);
                return;
            }
            if !self.takes(sending.to) {
                continue;
            }
            self.origin[at].left -= 1;
            if self.origin[at].left == 0 {
                self.origin.remove(at);
                self.left(None, sending);
            }
            return;
        }
    }

    /// An agent sends to its receivers in turn, as connections of equal weight do.
    fn send_of(&mut self, agent: u32) {
        let lines = self.nodes[agent as usize].sending.len();
        for line in 0..lines {
            let at = (line + self.step as usize) % lines;
            let sending = self.nodes[agent as usize].sending[at];
            let gone = !self.is_up(sending.to);
            if !gone && !self.takes(sending.to) {
                continue;
            }
            let node = &mut self.nodes[agent as usize];
            node.sending[at].left -= 1;
            node.send_from = self.step + node.every;
            // A receiver that is off: the sender's system drops the connection.
            if gone || node.sending[at].left == 0 {
                node.sending.remove(at);
                node.uploads.sent(&sending.to);
                self.fill(agent);
            }
            if !gone && sending.left == 1 {
                self.left(Some(agent), sending);
            }
            return;
        }
    }

    /// Whether the receiver's link takes an eighth of a chunk now: the switch keeps a little for it.
    fn takes(&mut self, to: u32) -> bool {
        let buffer = SWITCH_BUFFER;
        let node = &mut self.nodes[to as usize];
        if node.link_free > self.step + buffer * node.every {
            return false;
        }
        node.link_free = node.link_free.max(self.step) + node.every;
        true
    }

    /// A chunk has left its sender, and comes when the receiver's link has carried what waits there.
    fn left(&mut self, from: Option<u32>, sending: Sending) {
        let wait = self.nodes[sending.to as usize].link_free - self.step;
        self.post(wait, Message::Chunk { from, sending });
    }
}
