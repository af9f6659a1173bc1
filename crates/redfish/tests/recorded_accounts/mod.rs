//! Accounts of recorded machines, compared with counts that were made without this client.

use super::recorded_service::RecordedBmc;

/// Recording; slots; user names; shortest and longest password; refused logins that lock an account, and seconds of the
/// lock.
type Recorded = (
    &'static str,
    usize,
    &'static [&'static str],
    (Option<u64>, Option<u64>),
    (Option<u64>, Option<u64>),
);

const RECORDED: [Recorded; 6] = [
    (
        "dell",
        16,
        &["root", "tests_admin", "fwupd"],
        (None, Some(40)),
        (Some(0), Some(0)),
    ),
    (
        "gigabyte",
        2,
        &["admin", "root"],
        (Some(8), Some(25)),
        (Some(5), Some(30)),
    ),
    ("hpe", 2, &["root", "tests_admin"], (Some(8), None), (None, None)),
    ("lenovo", 1, &["root"], (Some(10), Some(32)), (Some(0), Some(60))),
    (
        "nvidia_viking",
        3,
        &["admin", "S6AmJsX9uejbhS2r", "tests_admin"],
        (Some(13), Some(20)),
        (Some(5), Some(30)),
    ),
    (
        "supermicro",
        2,
        &["root", "tests_admin"],
        (Some(8), Some(20)),
        (Some(3), Some(30)),
    ),
];

/// Reads accounts, roles and policy of each recording and compares them with its content.
pub async fn check() {
    for (recording, slots, users, lengths, lockout) in RECORDED {
        let recorded = RecordedBmc::open(recording, None).await;
        let client = &recorded.client;
        let policy = client.account_policy().await.unwrap();
        assert_eq!((policy.min_length, policy.max_length), lengths, "{recording}");
        assert_eq!((policy.lockout_threshold, policy.lockout_s), lockout, "{recording}");
        let listed = client.account_service().await.unwrap().accounts().unwrap();
        assert_eq!(client.member_links(&listed).await.unwrap().len(), slots, "{recording}");
        let accounts = client.accounts().await.unwrap();
        let found: Vec<String> = accounts.iter().filter_map(|account| account.user()).collect();
        let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
        let mut users = users.to_vec();
        found.sort_unstable();
        users.sort_unstable();
        assert_eq!(found, users, "{recording}");
        let roles = client.roles().await.unwrap();
        let may = |role: &str| {
            let role = roles.iter().find(|one| one.role() == role);
            role.map(rackwright_redfish::views::Role::privileges)
        };
        let administrator = may("Administrator").unwrap();
        assert!(administrator.contains(&"ConfigureUsers".to_owned()), "{recording}");
        assert!(
            !may("ReadOnly").unwrap().contains(&"ConfigureUsers".to_owned()),
            "{recording}"
        );
        println!(
            "{recording}: {slots} accounts, {} in use, {} roles, {policy:?}",
            users.len(),
            roles.len()
        );
        recorded.close(|_, _| false).await;
    }
}
