//! The health of a node: whether the control plane can work on it.

use rackwright_api::v1::NodeHealth;
use rackwright_lifecycle::{Bmc, Reading};
use rackwright_store::NodeRecord;

use super::convert;

/// The health of a node, and the reason if it is not OK. The fault that an operator has to settle first comes first.
#[must_use]
pub fn health(record: &NodeRecord) -> (NodeHealth, String) {
    if let Some(doubt) = &record.node.doubt {
        return (NodeHealth::Doubted, doubt.why.clone());
    }
    if record.spec.account.refused_at.is_some() {
        let why = "the BMC refuses the stored password; the password is not sent again";
        return (NodeHealth::LoginRefused, why.to_owned());
    }
    match &record.readings.bmc {
        Reading::Known {
            value: Bmc::Unreachable(why),
            ..
        } => (NodeHealth::Unreachable, why.clone()),
        Reading::Known {
            value: Bmc::Identified, ..
        } => (NodeHealth::Ok, String::new()),
        Reading::Unknown { .. } => (NodeHealth::Unknown, "the BMC must be read again".to_owned()),
        Reading::Never => (NodeHealth::Unknown, "the BMC was never read".to_owned()),
    }
}

/// The power as a word. A reading from before the BMC became unreachable does not count.
#[must_use]
pub fn power(record: &NodeRecord) -> &'static str {
    match health(record).0 {
        NodeHealth::Unreachable => "unknown",
        _ => convert::power(&record.readings.power),
    }
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_lifecycle::{BootTarget, Doubt, DoubtCause, Effect, Outcome, Power, State, Timestamp};
    use rackwright_nodes::perform::seen_answering;
    use rackwright_store::{Identity, Readings};

    use super::*;

    #[test]
    fn a_node_is_ok_only_while_its_bmc_answers() {
        let mut record = testing::node("n1", State::Available, None);
        record.readings.bmc = Reading::Never;
        assert_eq!(health(&record).0, NodeHealth::Unknown);
        let at = Timestamp(7);
        record.readings.bmc = Reading::Known {
            value: Bmc::Identified,
            at,
        };
        assert_eq!(health(&record), (NodeHealth::Ok, String::new()));
        record.readings.power = Reading::Known { value: Power::Off, at };
        assert_eq!(power(&record), "off");
        record.readings.bmc = Reading::Known {
            value: Bmc::Unreachable("no answer".into()),
            at,
        };
        assert_eq!(health(&record), (NodeHealth::Unreachable, "no answer".into()));
        assert_eq!(power(&record), "unknown", "it may have been switched on since");
        record.spec.account.refused_at = Some(at);
        assert_eq!(health(&record).0, NodeHealth::LoginRefused);
        record.node.doubt = Some(Doubt {
            cause: DoubtCause::Restored,
            since: at,
            why: "restored".into(),
            generation: 1,
        });
        assert_eq!(health(&record), (NodeHealth::Doubted, "restored".into()));
    }

    #[test]
    fn an_effect_that_the_bmc_did_ends_its_silence() {
        let silent = || Readings {
            bmc: Reading::Known {
                value: Bmc::Unreachable("no answer".into()),
                at: Timestamp(7),
            },
            ..Readings::default()
        };
        let identified = Identity {
            macs: vec!["52:54:00:00:00:01".into()],
            ..Identity::default()
        };
        let since = Timestamp(9);
        for (effect, outcome, is_silent) in [
            (Effect::PowerOn, Outcome::Succeeded, false),
            (Effect::SetBoot(BootTarget::Disk), Outcome::Succeeded, false),
            (Effect::PowerOn, Outcome::Interrupted, true),
            (Effect::Validate, Outcome::Succeeded, true),
        ] {
            let mut readings = silent();
            seen_answering(&mut readings, &identified, effect, &outcome, since);
            assert_eq!(readings.bmc == silent().bmc, is_silent, "{effect:?}, {outcome:?}");
            let mut readings = silent();
            seen_answering(&mut readings, &Identity::default(), effect, &outcome, since);
            let is_unread = readings.bmc == Reading::Unknown { since };
            assert_eq!(is_unread, !is_silent, "{effect:?}, {outcome:?}: not identified yet");
        }
    }
}
