//! Operations: listed newest first, ended once.

use rackwright_lifecycle::{OperationId, OperationKind};
use rackwright_store::{Filter, OperationRow, Scope, Term};

use super::support::{Lab, at, is_missing};

pub fn operation(id: &str, kind: &str, target: &str) -> OperationRow {
    OperationRow {
        id: OperationId::stored(id),
        version: 1,
        kind: OperationKind::parse(kind).expect("a kind"),
        target: target.into(),
        requested_by: "ann".into(),
        created_at: at(100),
        deadline: at(1000),
        ..OperationRow::default()
    }
}

async fn with(rows: &[OperationRow]) -> Lab {
    let lab = Lab::new().await;
    let mut tx = lab.store.write().await.unwrap();
    for row in rows {
        tx.insert_operation(row).await.unwrap();
    }
    tx.commit().await.unwrap();
    lab
}

async fn end(lab: &Lab, id: &str, code: i32, message: &str, us: i64) -> bool {
    let mut tx = lab.store.write().await.unwrap();
    let is_first = tx
        .end_operation(&OperationId::stored(id), code, message, at(us))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    is_first
}

async fn cancel(lab: &Lab, id: &str) -> bool {
    let mut tx = lab.store.write().await.unwrap();
    let noted = tx.request_cancel(&OperationId::stored(id)).await.unwrap();
    tx.commit().await.unwrap();
    noted
}

#[tokio::test]
async fn an_operation_ends_once_and_every_change_increments_its_version() {
    let lab = with(&[operation("o1", "deploy", "nodes/n1")]).await;
    assert_eq!(
        lab.store.operation(&Scope::Site, &"o1".into()).await.unwrap(),
        operation("o1", "deploy", "nodes/n1")
    );
    assert!(cancel(&lab, "o1").await);
    assert!(end(&lab, "o1", 9, "it failed", 300).await);
    assert!(!end(&lab, "o1", 0, "", 400).await);
    assert!(!cancel(&lab, "o1").await, "it has ended");
    assert!(!end(&lab, "nothing", 0, "", 400).await);
    assert!(!cancel(&lab, "nothing").await);
    let wanted = OperationRow {
        version: 3,
        ended_at: Some(at(300)),
        code: 9,
        message: "it failed".into(),
        cancel_requested: true,
        ..operation("o1", "deploy", "nodes/n1")
    };
    assert_eq!(lab.store.operation(&Scope::Site, &"o1".into()).await.unwrap(), wanted);
    assert!(is_missing(&lab.store.operation(&Scope::Site, &"o2".into()).await));
}

#[tokio::test]
async fn open_operations_of_a_target_come_oldest_first() {
    let lab = with(&[
        operation("o3", "power", "nodes/n1"),
        operation("o1", "enroll", "nodes/n1"),
        operation("o2", "deploy", "nodes/n1"),
        operation("o4", "deploy", "nodes/n2"),
    ])
    .await;
    end(&lab, "o1", 0, "", 200).await;
    let mut tx = lab.store.write().await.unwrap();
    let open: Vec<_> = tx
        .open_operations("nodes/n1")
        .await
        .unwrap()
        .into_iter()
        .map(|o| o.id)
        .collect();
    assert_eq!(open, ["o2", "o3"]);
}

#[tokio::test]
async fn only_open_operations_after_their_deadline_are_overdue() {
    let lab = with(&[
        operation("o1", "deploy", "nodes/n1"),
        operation("o2", "deploy", "nodes/n2"),
    ])
    .await;
    end(&lab, "o2", 0, "", 200).await;
    assert!(lab.store.overdue_operations(at(1000)).await.unwrap().is_empty());
    let overdue = lab.store.overdue_operations(at(1001)).await.unwrap();
    assert_eq!(overdue, [operation("o1", "deploy", "nodes/n1")]);
}

#[tokio::test]
async fn operations_are_filtered_and_paged_newest_first() {
    let lab = with(&[
        operation("o1", "deploy", "nodes/n1"),
        operation("o2", "release", "nodes/n1"),
        operation("o3", "deploy", "nodes/n2"),
        operation("o4", "deploy", "nodes/n1"),
    ])
    .await;
    end(&lab, "o1", 0, "", 200).await;
    end(&lab, "o3", 9, "no", 200).await;
    let is = Term::is;
    let on_n1 = || is("target", "nodes/n1");
    let either = [is("kind", "release"), is("target", "nodes/n2")].concat();
    let cases: &[(Filter, &str, i64, &[&str])] = &[
        (vec![], "", 10, &["o4", "o3", "o2", "o1"]),
        (vec![], "", 2, &["o4", "o3"]),
        (vec![], "o3", 2, &["o2", "o1"]),
        (vec![], "o1", 2, &[]),
        (vec![on_n1()], "", 10, &["o4", "o2", "o1"]),
        (vec![Term::is_not("target", "nodes/n1")], "", 10, &["o3"]),
        (vec![is("kind", "deploy")], "", 10, &["o4", "o3", "o1"]),
        (vec![either], "", 10, &["o3", "o2"]),
        (vec![is("done", "true")], "", 10, &["o3", "o1"]),
        (vec![is("done", "false")], "", 10, &["o4", "o2"]),
        (vec![is("result", "succeeded")], "", 10, &["o1"]),
        (vec![is("result", "failed")], "", 10, &["o3"]),
        (
            vec![on_n1(), is("kind", "deploy"), is("done", "true")],
            "o4",
            10,
            &["o1"],
        ),
    ];
    for (filter, before, limit, wanted) in cases {
        let found = lab
            .store
            .operations(&Scope::Site, filter, before, *limit)
            .await
            .unwrap();
        let ids: Vec<_> = found.iter().map(|o| o.id.as_str()).collect();
        assert_eq!(ids, *wanted, "{filter:?} {before:?} {limit}");
    }
}
