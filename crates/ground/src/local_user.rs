//! The person who runs a command of this program on the control plane's host.

#![expect(clippy::disallowed_methods, reason = "a command, and no daemon")]

use std::os::unix::fs::MetadataExt as _;

/// Longest name of a local user in an event.
const USER_MAX: usize = 64;

/// The person at this host, as far as the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUser {
    /// The user of this process.
    pub uid: u32,
    /// The name of that user; empty: unknown.
    pub name: String,
    /// The user who logged in to the host, before any `su` or `sudo`. `None`: the kernel has no record.
    pub login_uid: Option<u32>,
}

impl LocalUser {
    /// The user of this process.
    #[must_use]
    pub fn present() -> Self {
        let uid = std::fs::metadata("/proc/self").map_or(u32::MAX, |own| own.uid());
        let login = std::fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self {
            uid,
            name: name_of(uid, &users),
            // The kernel's value for "no login".
            login_uid: login.trim().parse().ok().filter(|uid| *uid != u32::MAX),
        }
    }

    /// The person as text for the audit.
    pub(crate) fn description(&self) -> String {
        let name = match self.name.as_str() {
            "" => String::new(),
            name => format!("{name}, "),
        };
        let login = self
            .login_uid
            .map(|uid| format!(", logged in as uid {uid}"))
            .unwrap_or_default();
        format!("{name}uid {}{login}", self.uid)
    }
}

fn name_of(uid: u32, users: &str) -> String {
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then_some(name)
    });
    let printable = found.unwrap_or_default().chars().filter(|c| !c.is_control());
    printable.take(USER_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbroken\n";
        assert_eq!(name_of(1000, users), "ann");
        assert_eq!(name_of(5, users), "");
    }
}
