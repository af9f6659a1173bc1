//! What fails in a seed: messages, writes of partitions, cables between nodes, and BMCs that give no answer.

use super::super::BEGIN;
use super::super::chance::Chance;
use super::super::world::World;
use rackwright_lifecycle::minutes;

/// Sets the rates of a seed and the silences of its BMCs.
pub fn plan(world: &mut World, ids: &[String], chance: &Chance) {
    world.failures_of_1000 = [0, 5, 20, 60][chance.below(4)];
    world.fabric.torn_of_1000 = [0, 50, 200][chance.below(3)];
    world.fabric.slow_of_1000 = [0, 100, 500][chance.below(3)];
    world.verdicts.faulty_of_1000 = [0, 60, 200][chance.below(3)];
    world.verdicts.blocked_of_1000 = [0, 0, 150][chance.below(3)];
    for id in ids {
        if chance.of_1000(200) {
            let from = BEGIN.plus(minutes(10)).plus(chance.millis(0, 5_400_000));
            let until = from.plus(chance.millis(20_000, 1_800_000));
            world.silences.insert(id.clone(), (from, until));
        }
    }
}

/// Nothing fails any more.
pub fn end(world: &mut World) {
    world.failures_of_1000 = 0;
    world.fabric.torn_of_1000 = 0;
    world.fabric.slow_of_1000 = 0;
    world.verdicts.faulty_of_1000 = 0;
    world.verdicts.blocked_of_1000 = 0;
    world.silences.clear();
}
