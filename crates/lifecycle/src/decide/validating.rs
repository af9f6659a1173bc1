//! Validating: the checks, then our key is taken off the machine.
//!
//! A node that was handed over before has no key of ours on it any more. It is checked from outside.

use super::{Ctx, Line, Never, go};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::facts::Power;
use crate::time::Timestamp;

impl Ctx<'_> {
    pub(super) fn validating(&self) -> Line<Never> {
        let handed_over = self
            .node
            .claim
            .as_ref()
            .is_some_and(|c| c.handed_over == Some(c.deployment));
        if handed_over {
            if self.facts.succeeded(Effect::ValidateFromOutside).is_some() {
                return Err(go(Edge::Validated));
            }
            // Whoever had it in their hands may have switched it off.
            if self.power_since(Timestamp::default())? == Power::Off {
                return Err(self.attempt(Effect::PowerOn));
            }
            return Err(self.attempt(Effect::ValidateFromOutside));
        }
        if self.facts.succeeded(Effect::HandOver).is_some() {
            return Err(go(Edge::Validated));
        }
        if self.facts.succeeded(Effect::Validate).is_some() {
            return Err(self.attempt(Effect::HandOver));
        }
        Err(self.attempt(Effect::Validate))
    }
}
