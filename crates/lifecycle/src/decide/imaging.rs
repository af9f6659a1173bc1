//! Imaging: the agent runs, the image is written.

use super::{Ctx, Line, Never, go};
use crate::chart::Edge;
use crate::effect::Effect;

impl Ctx<'_> {
    pub(super) fn imaging(&self) -> Line<Never> {
        if self.facts.succeeded(Effect::WriteImage).is_some() {
            return Err(go(Edge::Written));
        }
        self.agent()?;
        Err(self.attempt(Effect::WriteImage))
    }
}
