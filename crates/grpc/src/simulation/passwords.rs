//! Invariants of BMC passwords at the end of a run.

use rackwright_ground::bmc::bmc_password_purpose;
use rackwright_identity::Sealer;
use rackwright_lifecycle::Effect;
use rackwright_store::Store;
use secrecy::ExposeSecret as _;

use super::checks::records;
use super::performer::Fake;
use super::world::FACTORY;

/// Whether a password change was abandoned for now: the rule repeats it after a day.
pub async fn has_abandoned_change(store: &Store) -> bool {
    records(store).await.iter().any(|r| r.spec.account.changed_at.is_none())
}

/// Every BMC has a generated password, which is the stored one; no account was ever locked, and no login was refused for
/// good.
pub async fn violations(store: &Store, fake: &Fake, sealer: &Sealer) -> Vec<String> {
    let mut wrong = Vec::new();
    for record in records(store).await {
        let (id, spec) = (&record.id, &record.spec);
        let accounts = fake.world().bmcs[id.as_str()].accounts().clone();
        let password = sealer.open(&spec.bmc_password, &bmc_password_purpose(id));
        let password = password.expect("it was sealed here");
        let is_good = accounts.opens(&spec.bmc_username, password.expose_secret());
        let is_ours = spec.account.changed_at.is_some() && !accounts.opens("root", FACTORY);
        if !is_good || !is_ours || spec.account.pending.is_some() || spec.account.refused_at.is_some() {
            let rows = store.attempts(id, record.node.since).await;
            let rows = rows.expect("effects can be read");
            let changes: Vec<_> = rows
                .iter()
                .map(|row| &row.attempt)
                .filter(|attempt| attempt.effect == Effect::ChangePassword)
                .collect();
            wrong.push(format!(
                "{id}: its BMC has {accounts:?}, {:?} is stored, and the changes of this state were {changes:?}",
                spec.account
            ));
        }
        if accounts.locked > 0 {
            wrong.push(format!("{id}: its BMC's account was locked"));
        }
    }
    wrong
}
