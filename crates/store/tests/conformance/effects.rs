//! Attempts of effects: stored before they are made, one open for each node, ended once.

use rackwright_lifecycle::{Effect, Outcome};
use rackwright_store::StoreError;

use super::support::{Lab, at, is_conflict, node, try_of};

fn failure(message: &str, retryable: bool) -> Outcome {
    Outcome::Failed {
        code: "refused".into(),
        message: message.into(),
        retryable,
    }
}

#[tokio::test]
async fn a_node_has_at_most_one_open_effect() {
    let lab = Lab::new().await.with(&[node("n1"), node("n2")]).await;
    let first = try_of("n1", Effect::PowerOn, 1);
    let mut tx = lab.store.write().await.unwrap();
    tx.begin_effect(&first).await.unwrap();
    tx.begin_effect(&try_of("n2", Effect::PowerOn, 1)).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = lab.store.write().await.unwrap();
    let second = try_of("n1", Effect::PowerOff, 1);
    let refused = tx.begin_effect(&second).await;
    assert!(is_conflict(&refused), "{refused:?}");
    assert_eq!(tx.open_effect(&"n1".into()).await.unwrap().as_ref(), Some(&first));
    // Within one change: the first ends, the second begins.
    assert!(tx.end_effect(&first.id, &Outcome::Succeeded, at(150)).await.unwrap());
    assert_eq!(tx.open_effect(&"n1".into()).await.unwrap(), None);
    tx.begin_effect(&second).await.unwrap();
    tx.commit().await.unwrap();
    let mut open: Vec<_> = lab
        .store
        .open_effects()
        .await
        .unwrap()
        .into_iter()
        .map(|e| e.id)
        .collect();
    open.sort();
    assert_eq!(open, ["n1-power-off-1", "n2-power-on-1"]);
}

#[tokio::test]
async fn an_effect_ends_once_and_the_first_end_counts() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let row = try_of("n1", Effect::WriteImage, 1);
    let mut tx = lab.store.write().await.unwrap();
    tx.begin_effect(&row).await.unwrap();
    let failed = failure("disk full", false);
    assert!(tx.end_effect(&row.id, &failed, at(150)).await.unwrap());
    assert!(!tx.end_effect(&row.id, &Outcome::Succeeded, at(160)).await.unwrap());
    assert!(!tx.end_effect("nothing", &Outcome::Succeeded, at(160)).await.unwrap());
    tx.commit().await.unwrap();

    let mut tx = lab.store.write().await.unwrap();
    assert!(!tx.end_effect(&row.id, &Outcome::Succeeded, at(170)).await.unwrap());
    drop(tx);
    let kept = lab.store.effect(&row.id).await.unwrap().unwrap();
    assert_eq!(kept.attempt.outcome, failed);
    assert_eq!(kept.attempt.ended_at, Some(at(150)));
}

#[tokio::test]
async fn every_outcome_and_every_effect_is_read_back() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let outcomes = [
        Outcome::Succeeded,
        Outcome::Interrupted,
        failure("again", true),
        failure("never", false),
    ];
    let mut wanted = Vec::new();
    let mut tx = lab.store.write().await.unwrap();
    for (number, effect) in (1i64..).zip(Effect::ALL) {
        let mut row = try_of("n1", *effect, number);
        row.attempt.boot_id = (number % 2 == 0).then(|| "boot".to_owned());
        tx.begin_effect(&row).await.unwrap();
        let outcome = outcomes[usize::try_from(number).unwrap() % outcomes.len()].clone();
        tx.end_effect(&row.id, &outcome, at(900 + number)).await.unwrap();
        row.attempt.ended_at = Some(at(900 + number));
        row.attempt.outcome = outcome;
        wanted.push(row);
    }
    let seen = tx.attempts(&"n1".into(), at(100)).await.unwrap();
    assert_eq!(seen, wanted.iter().map(|r| r.attempt.clone()).collect::<Vec<_>>());
    tx.commit().await.unwrap();
    assert_eq!(lab.store.attempts(&"n1".into(), at(100)).await.unwrap(), wanted);
    assert_eq!(lab.store.effect("nothing").await.unwrap(), None);
}

#[tokio::test]
async fn a_damaged_effect_is_an_error_that_names_the_effect() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let row = try_of("n1", Effect::ALL[0], 1);
    let mut tx = lab.store.write().await.unwrap();
    tx.begin_effect(&row).await.unwrap();
    tx.commit().await.unwrap();
    for (columns, named) in [
        ("outcome = 'done'", "\"done\""),
        ("outcome = 'open', generation = -1", "out of range"),
    ] {
        lab.database.sql(&format!("UPDATE effects SET {columns}")).await;
        let refused = lab.store.effect(&row.id).await;
        let is_named = matches!(&refused, Err(StoreError::Corrupt { what: "effect", id, source })
            if *id == row.id && source.to_string().contains(named));
        assert!(is_named, "{refused:?}");
    }
}

#[tokio::test]
async fn only_tries_of_the_requested_state_count_the_newest_200_in_order() {
    let lab = Lab::new().await.with(&[node("n1")]).await;
    let mut tx = lab.store.write().await.unwrap();
    let mut former = try_of("n1", Effect::Identify, 999);
    former.state_since = at(50);
    tx.begin_effect(&former).await.unwrap();
    tx.end_effect(&former.id, &Outcome::Succeeded, at(60)).await.unwrap();
    for number in 1..=205 {
        let mut row = try_of("n1", Effect::Identify, number);
        // All at the same instant: the order of writing decides.
        row.attempt.started_at = at(100);
        tx.begin_effect(&row).await.unwrap();
        tx.end_effect(&row.id, &failure("no", true), at(200)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let numbers = |rows: Vec<rackwright_store::EffectRow>| rows.iter().map(|r| r.number).collect::<Vec<_>>();
    let kept = numbers(lab.store.attempts(&"n1".into(), at(100)).await.unwrap());
    assert_eq!(kept, (6..=205).collect::<Vec<_>>());
    assert_eq!(numbers(lab.store.attempts(&"n1".into(), at(50)).await.unwrap()), [999]);
    assert_eq!(
        lab.store.tries_of(&"n1".into(), Effect::Identify).await.unwrap().len(),
        206,
        "every state's"
    );
    assert!(
        lab.store
            .tries_of(&"n1".into(), Effect::PowerOn)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_effect_of_no_node_is_refused() {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    assert!(tx.begin_effect(&try_of("ghost", Effect::PowerOn, 1)).await.is_err());
}
