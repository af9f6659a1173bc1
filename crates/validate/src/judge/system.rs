//! Checks of the operating system and its kernel against the image's statements and the profile: both must hold.

use rackwright_api::v1::Check;
use rackwright_pattern::fits;

use super::{Finding, ImagePatterns, of_profile};
use crate::profile::Profile;
use crate::readings::Readings;

/// One pattern, and the value that must match it.
struct Wanted<'a> {
    /// The key in /etc/os-release; empty for the kernel.
    key: &'static str,
    pattern: &'a str,
    from: String,
    found: &'a str,
}

impl Wanted<'_> {
    fn threshold(&self) -> String {
        let equals = if self.key.is_empty() { "" } else { "=" };
        format!("{}{equals}{} ({})", self.key, self.pattern, self.from)
    }
}

pub(super) fn os(profile: &Profile, patterns: &ImagePatterns, readings: &Readings) -> Check {
    let os = &readings.os;
    let measured = if os.pretty_name.is_empty() {
        format!("{} {}", os.id, os.version_id).trim().to_owned()
    } else {
        os.pretty_name.clone()
    };
    let of_profile = of_profile(profile);
    let (id, version) = (os.id.as_str(), os.version_id.as_str());
    let wanted = wanted([
        ("ID", patterns.os_id.as_deref(), "image", id),
        ("VERSION_ID", patterns.os_version_id.as_deref(), "image", version),
        ("ID", profile.os_id.as_deref(), &of_profile, id),
        ("VERSION_ID", profile.os_version_id.as_deref(), &of_profile, version),
    ]);
    judged(measured, &wanted, "/etc/os-release").check("os", &source(&wanted, of_profile))
}

pub(super) fn kernel(profile: &Profile, patterns: &ImagePatterns, readings: &Readings) -> Check {
    let found = readings.kernel_release.as_str();
    let of_profile = of_profile(profile);
    let wanted = wanted([
        ("", patterns.kernel.as_deref(), "image", found),
        ("", profile.kernel.as_deref(), &of_profile, found),
    ]);
    judged(found.to_owned(), &wanted, "uname").check("kernel", &source(&wanted, of_profile))
}

fn wanted<'a, const N: usize>(all: [(&'static str, Option<&'a str>, &str, &'a str); N]) -> Vec<Wanted<'a>> {
    let given = all.into_iter().filter_map(|(key, pattern, from, found)| {
        Some(Wanted {
            key,
            pattern: pattern?,
            from: from.to_owned(),
            found,
        })
    });
    given.collect()
}

/// The source of the expectation; without any, the profile, which could have one.
fn source(wanted: &[Wanted<'_>], of_profile: String) -> String {
    let mut from: Vec<&str> = wanted.iter().map(|w| w.from.as_str()).collect();
    from.dedup();
    if from.is_empty() {
        return of_profile;
    }
    from.join(", ")
}

fn judged(measured: String, wanted: &[Wanted<'_>], read_from: &str) -> Finding {
    if wanted.is_empty() {
        return recorded(measured, read_from);
    }
    let threshold: Vec<String> = wanted.iter().map(Wanted::threshold).collect();
    let threshold = threshold.join(", ");
    let off: Vec<String> = wanted
        .iter()
        .filter(|w| !fits(w.pattern, w.found))
        .map(|w| match w.key {
            "" => format!("the machine runs another kernel than the {} expects", w.from),
            key => format!("{key} is {:?}, and the {} expects {}", w.found, w.from, w.pattern),
        })
        .collect();
    let measured = if measured.is_empty() {
        "unreadable".to_owned()
    } else {
        measured
    };
    if off.is_empty() {
        Finding::pass(measured, threshold)
    } else {
        Finding::fail(measured, threshold, off.join("; "))
    }
}

/// A value without a threshold.
fn recorded(found: String, from: &str) -> Finding {
    if found.is_empty() {
        let why = format!("{from} reports no value, and neither the image nor the profile expects a value");
        Finding::not_applicable("unreadable", "any", why)
    } else {
        Finding::pass(found, "any")
    }
}
