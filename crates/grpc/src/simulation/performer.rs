//! The control plane's effects on simulated machines. Messages get lost; an effect with a lost answer may still have
//! happened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rackwright_control::clusters::network::{NetworkTester, TestFuture};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{
    Bmc, BootTarget, ClusterId, Effect, Outcome, Power, Reading, SETTINGS_DIFFER, Timestamp, is_interrupted, seconds,
};
use rackwright_nodes::credentials::change_with;
use rackwright_nodes::effect_result::{EffectResult, LearnedFact};
use rackwright_nodes::perform::{EffectFuture, Performer, seen_off, seen_on, still_off};
use rackwright_nodes::testing::drives_recorded;
use rackwright_store::{Identity, NetworkTest, NodeRecord, Scope, SettingsRead};
use tokio::sync::Notify;

use super::chance::Chance;
use super::clusters::traffic;
use super::gate::Gate;
use super::world::{Content, Machine, Running, World, known_to_bmc, mac};
use crate::feature_tests::fake_bmc::Lost;

/// Simulates BMCs and installed systems.
#[derive(Debug, Clone)]
pub struct Fake {
    pub world: Arc<Mutex<World>>,
    pub gate: Arc<Gate>,
    pub chance: Arc<Chance>,
}

/// How an exchange fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request was lost.
    Before,
    /// The answer was lost.
    After,
}

impl Performer for Fake {
    fn perform<'a>(
        &'a self,
        core: &'a Core,
        record: &'a NodeRecord,
        effect: Effect,
        _: &'a Notify,
    ) -> EffectFuture<'a> {
        Box::pin(self.does(core, record, effect))
    }
}

impl NetworkTester for Fake {
    fn test<'a>(
        &'a self,
        _: &'a Arc<Core>,
        _: &'a ClusterId,
        began: &'a NetworkTest,
        nodes: Vec<NodeRecord>,
    ) -> TestFuture<'a> {
        Box::pin(traffic::test(self, began, nodes))
    }
}

impl Fake {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn pause(&self, least_ms: usize, most_ms: usize) {
        let until = clock::now().plus(self.chance.millis(least_ms, most_ms));
        self.gate.sleep_until(until).await;
    }

    pub fn fault(&self) -> Option<Fault> {
        let failures_of_1000 = self.world().failures_of_1000;
        match (
            self.chance.of_1000(failures_of_1000),
            self.chance.of_1000(failures_of_1000),
        ) {
            (true, _) => Some(Fault::Before),
            (_, true) => Some(Fault::After),
            _ => None,
        }
    }

    async fn does(&self, core: &Core, record: &NodeRecord, effect: Effect) -> EffectResult {
        let fault = self.fault();
        self.pause(1, 900).await;
        if fault == Some(Fault::Before) || self.world().is_silent(record.id.as_str(), effect, clock::now()) {
            return unreachable_bmc();
        }
        let done = match effect {
            Effect::AwaitHost | Effect::ValidateFromOutside => self.host_answers(core, record).await,
            Effect::Validate => self.validate(record),
            Effect::ChangePassword => self.change_password(core, record).await,
            Effect::ReadDrives => drives_recorded(core, record, vec![known_to_bmc(record.id.as_str())]).await,
            other => self.at_once(record, other),
        };
        self.pause(0, 900).await;
        if fault == Some(Fault::After) {
            unreachable_bmc()
        } else {
            done
        }
    }

    fn at_once(&self, record: &NodeRecord, effect: Effect) -> EffectResult {
        let (id, now) = (record.id.as_str(), clock::now());
        let mut world = self.world();
        match effect {
            Effect::Identify => identified(id, world.machine(id)),
            Effect::ObservePower => power_seen(world.machine(id).on),
            Effect::SetBoot(target) => {
                world.set_network_once(id, target == BootTarget::Network);
                EffectResult::succeeded()
                    .seen(move |readings, at| readings.boot_target = Reading::Known { value: target, at })
            }
            Effect::PowerOn => {
                world.power_on(id, now, &self.chance);
                EffectResult::succeeded().seen(seen_on)
            }
            Effect::PowerOff => {
                world.power_off(id, now, &self.chance);
                EffectResult::succeeded().seen(seen_off)
            }
            Effect::ProvePowerOff => still_off(if world.machine(id).on { Power::On } else { Power::Off }),
            Effect::ApplySettings => {
                let machine = world.machine(id);
                machine.will_be_set = !machine.is_set;
                EffectResult::succeeded()
            }
            Effect::VerifySettings => {
                let machine = world.machine(id);
                let is_so = machine.is_set && !machine.will_be_set;
                let mut done = if is_so {
                    EffectResult::succeeded()
                } else {
                    EffectResult::failed_for_now(SETTINGS_DIFFER, "bios/A is otherwise, as simulated")
                };
                done.learned = Some(LearnedFact::Settings(SettingsRead {
                    is_proof: true,
                    is_as_wanted: is_so,
                    body: "[]".into(),
                }));
                done
            }
            Effect::CleanBmc => clean(world.machine(id)),
            _ => EffectResult::succeeded(),
        }
    }

    async fn host_answers(&self, core: &Core, record: &NodeRecord) -> EffectResult {
        let end = clock::now().plus(seconds(i64::from(core.config.policy.host_boot_s) - 3));
        while clock::now() < end {
            if self.world().machine(record.id.as_str()).running == Running::Host {
                return EffectResult::succeeded();
            }
            if core
                .store
                .node(&Scope::Site, &record.id)
                .await
                .is_ok_and(|r| is_interrupted(&r.node))
            {
                return EffectResult::with_outcome(Outcome::Interrupted);
            }
            self.pause(2_000, 2_000).await;
        }
        EffectResult::failed_for_now("host-ssh", "the host does not answer, as simulated")
    }

    /// Runs the real algorithm on a simulated BMC. Sometimes a message is lost.
    async fn change_password(&self, core: &Core, record: &NodeRecord) -> EffectResult {
        let bmc_access = self.world().bmcs[record.id.as_str()].clone();
        let failures_of_1000 = self.world().failures_of_1000;
        let lost = match (self.chance.of_1000(failures_of_1000 * 4), self.chance.of_1000(500)) {
            (true, true) => Some(Lost::Request),
            (true, false) => Some(Lost::Answer),
            _ => None,
        };
        let at = self.chance.below(7);
        {
            let mut accounts = bmc_access.accounts();
            let next = accounts.exchanges;
            accounts.lost = lost.map(|what| (next + at, what));
        }
        change_with(core, record, &bmc_access).await
    }

    fn validate(&self, record: &NodeRecord) -> EffectResult {
        let Some(claim) = &record.node.claim else {
            return EffectResult::failed_for_good("no-access", "no claim");
        };
        let mut world = self.world();
        if self.chance.of_1000(world.failures_of_1000 / 2) {
            return EffectResult::failed_for_good("check-failed", "a check failed, as simulated");
        }
        let machine = world.machine(record.id.as_str());
        let wanted = Content::Image(claim.generation, claim.image_digest.clone());
        if machine.running == Running::Host && machine.content == wanted {
            EffectResult::succeeded()
        } else {
            let message = format!("{:?} with {:?}", machine.running, machine.content);
            EffectResult::failed_for_now("host-probe", message)
        }
    }
}

/// Refuses while the machine is on: its system could restore what is removed from the BMC.
fn clean(machine: &mut Machine) -> EffectResult {
    if machine.on {
        return EffectResult::failed_for_now("bmc-not-clean", "the machine is on, as simulated");
    }
    machine.has_back_door = false;
    EffectResult::succeeded()
}

fn power_seen(on: bool) -> EffectResult {
    let value = if on { Power::On } else { Power::Off };
    EffectResult::succeeded().seen(move |readings, at| readings.power = Reading::Known { value, at })
}

fn identified(id: &str, machine: &Machine) -> EffectResult {
    let macs = vec![mac(id)];
    let mut done = power_seen(machine.on);
    let power = done.readings.take();
    done.learned = Some(LearnedFact::Machine {
        identity: Identity {
            macs,
            ..Identity::default()
        },
        certificate: None,
    });
    done.seen(move |readings, at: Timestamp| {
        readings.bmc = Reading::Known {
            value: Bmc::Identified,
            at,
        };
        if let Some(power) = &power {
            power(readings, at);
        }
    })
}

fn unreachable_bmc() -> EffectResult {
    let message = "the BMC does not answer, as simulated";
    EffectResult::failed_for_now("bmc-unreachable", message).seen(|readings, at| {
        let value = Bmc::Unreachable("as simulated".into());
        readings.bmc = Reading::Known { value, at };
    })
}
