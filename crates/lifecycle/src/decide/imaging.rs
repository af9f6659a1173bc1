//! Imaging: the agent runs, the image is written.

use super::{Ctx, Line, Never, go};
use crate::chart::Edge;
use crate::effect::Effect;
use crate::time::Timestamp;

impl Ctx<'_> {
    pub(super) fn imaging(&self) -> Line<Never> {
        if self.facts.succeeded(Effect::WriteImage).is_some() {
            return Err(go(Edge::Written));
        }
        self.agent(Timestamp::default())?;
        Err(self.attempt(Effect::WriteImage))
    }
}
