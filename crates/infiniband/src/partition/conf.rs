//! OpenSM's `partitions.conf` (grammar: linux-rdma/opensm, `doc/partition-config.txt` and `opensm/osm_prtn_config.c`).
//!
//! OpenSM fails open: it replaces an unreadable file by one partition in which every port is a full member. It also
//! accepts prefixes of keywords, cuts lines at 4,095 bytes and ignores unknown flags. So this module writes a small,
//! regular subset of the grammar with one GUID per line, and the reader accepts exactly this subset.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Membership, PKey, Partition, Partitions};
use crate::guid::Guid;

/// Maximum length of a line for OpenSM, in bytes.
pub const MAX_LINE_BYTES: usize = 4_095;
/// Maximum size of a file, in bytes: 100,000 ports in two partitions need 5 MB.
const MAX_BYTES: usize = 64 << 20;
const HEADER: &str =
    "# Written by Rackwright. Changes made here are lost; a file that OpenSM cannot read opens every partition.";

/// Why a text is not accepted as a `partitions.conf`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text}")]
pub struct ConfError {
    /// Line, from 1.
    pub line: u32,
    /// The fault.
    pub text: String,
}

/// Letters, digits, `-`, `_` and `.`, with a letter first: OpenSM takes a name that begins with a digit for a key.
pub(super) fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    starts && name.len() <= 32 && name.chars().all(allowed)
}

pub(super) fn render(partitions: &Partitions) -> String {
    let mut out = format!("{HEADER}\nDefault=0x7fff, defmember=limited :\n  ALL=limited,\n");
    // Writing to a string cannot fail.
    for port in &partitions.management {
        let _ = writeln!(out, "  {port}=full,");
    }
    out.push_str("  SELF=full ;\n");
    for partition in partitions.partitions.values() {
        let first = if partition.first { ", indx0" } else { "" };
        let _ = writeln!(out, "{}={}{first}, defmember=full :", partition.name, partition.key);
        let last = partition.members.len();
        for (at, (port, membership)) in (1..).zip(&partition.members) {
            let end = if at == last { " ;" } else { "," };
            let _ = writeln!(out, "  {port}={}{end}", membership.word());
        }
    }
    out
}

/// Reads a `partitions.conf` in the form written by this module.
///
/// # Errors
/// The text has a part that OpenSM would refuse or misread, or that this module never writes.
pub fn parse(text: &str) -> Result<Partitions, ConfError> {
    let fail = |line: u32, text: String| Err(ConfError { line, text });
    if text.len() > MAX_BYTES {
        return fail(1, format!("the file has {} bytes, more than {MAX_BYTES}", text.len()));
    }
    let mut rules = Rules::default();
    let mut open: Option<Rule> = None;
    let mut last = 0;
    for (line, raw) in (1u32..).zip(text.lines()) {
        last = line;
        if raw.len() > MAX_LINE_BYTES {
            return fail(
                line,
                format!(
                    "the line has {} bytes; OpenSM cuts lines after {MAX_LINE_BYTES}",
                    raw.len()
                ),
            );
        }
        if raw.contains('\0') {
            return fail(line, "a zero byte; OpenSM stops reading the line there".to_owned());
        }
        let mut rest = raw.split('#').next().unwrap_or_default().trim();
        while !rest.is_empty() {
            let at = |text: String| ConfError { line, text };
            let rule = match open.as_mut() {
                None => {
                    let Some((head, body)) = rest.split_once(':') else {
                        return fail(line, format!("a partition must end in ':', found {:?}", short(rest)));
                    };
                    rest = body.trim_start();
                    open.insert(Rule::of(head, line).map_err(at)?)
                }
                Some(rule) => rule,
            };
            let (members, tail) = match rest.split_once(';') {
                Some((members, tail)) => (members, Some(tail)),
                None => (rest, None),
            };
            rule.add(members).map_err(at)?;
            match tail {
                Some(tail) => {
                    rest = tail.trim_start();
                    if let Some(rule) = open.take() {
                        rules.close(rule).map_err(at)?;
                    }
                }
                None => rest = "",
            }
        }
    }
    match open {
        Some(rule) => fail(rule.line, "the partition has no ';' at its end".to_owned()),
        None => rules.finish().map_err(|text| ConfError {
            line: last.max(1),
            text,
        }),
    }
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A partition during its reading.
struct Rule {
    line: u32,
    name: String,
    key: PKey,
    first: bool,
    /// A member may follow, because the last token was a comma or there is none.
    expects: bool,
    all: Option<Membership>,
    manager: Option<Membership>,
    members: BTreeMap<Guid, Membership>,
    default_membership: Membership,
}

impl Rule {
    fn of(head: &str, line: u32) -> Result<Self, String> {
        let mut parts = head.split(',').map(str::trim);
        let (name, key) = parts
            .next()
            .and_then(|part| part.split_once('='))
            .ok_or_else(|| format!("a partition must begin with Name=0xKEY, found {:?}", short(head)))?;
        let (name, key) = (name.trim(), key.trim());
        if !is_name(name) {
            return Err(format!("{:?} is not a partition name", short(name)));
        }
        let mut rule = Self {
            line,
            name: name.to_owned(),
            key: key.parse().map_err(|error| format!("{error}"))?,
            first: false,
            expects: true,
            all: None,
            manager: None,
            members: BTreeMap::new(),
            default_membership: Membership::Limited,
        };
        for flag in parts {
            match flag {
                "indx0" => rule.first = true,
                "defmember=full" => rule.default_membership = Membership::Full,
                "defmember=limited" => rule.default_membership = Membership::Limited,
                _ => {
                    return Err(format!(
                        "unknown flag {:?}: write indx0, defmember=full or defmember=limited",
                        short(flag)
                    ));
                }
            }
        }
        Ok(rule)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        let (text, comma) = match text.strip_suffix(',') {
            Some(text) => (text, true),
            None => (text, false),
        };
        if !self.expects {
            return Err("a comma is missing before this member".to_owned());
        }
        for member in text.split(',') {
            self.member(member.trim())?;
        }
        self.expects = comma;
        Ok(())
    }

    fn member(&mut self, text: &str) -> Result<(), String> {
        let (who, membership) = match text.split_once('=') {
            None => (text, self.default_membership),
            Some((who, word)) => match word.trim() {
                "full" => (who.trim_end(), Membership::Full),
                "limited" => (who.trim_end(), Membership::Limited),
                word => return Err(format!("{:?} is not a membership: write full or limited", short(word))),
            },
        };
        let twice = match who {
            "ALL" => self.all.replace(membership).is_some(),
            "SELF" => self.manager.replace(membership).is_some(),
            _ => {
                let guid = Some(who)
                    .filter(|who| who.starts_with("0x"))
                    .and_then(|who| who.parse::<Guid>().ok());
                let guid = guid.ok_or_else(|| format!("{:?} is not a port GUID, ALL or SELF", short(who)))?;
                self.members.insert(guid, membership).is_some()
            }
        };
        if twice {
            Err(format!("{who} is listed twice"))
        } else {
            Ok(())
        }
    }
}

#[derive(Default)]
struct Rules {
    partitions: Partitions,
    default_seen: bool,
}

impl Rules {
    fn close(&mut self, rule: Rule) -> Result<(), String> {
        if rule.expects && !(rule.members.is_empty() && rule.all.is_none() && rule.manager.is_none()) {
            return Err("a member is missing after the last comma".to_owned());
        }
        if rule.key == PKey::DEFAULT {
            return self.close_default(rule);
        }
        if rule.all.is_some() || rule.manager.is_some() {
            return Err(format!(
                "ALL and SELF are allowed only in the default partition, not in {}",
                rule.key
            ));
        }
        let key = rule.key;
        let partition = Partition {
            name: rule.name,
            key,
            first: rule.first,
            members: rule.members,
        };
        match self.partitions.partitions.insert(key, partition) {
            Some(_) => Err(format!("{key} is defined twice")),
            None => Ok(()),
        }
    }

    fn close_default(&mut self, rule: Rule) -> Result<(), String> {
        if std::mem::replace(&mut self.default_seen, true) {
            return Err("the default partition is defined twice".to_owned());
        }
        let closed = rule.all == Some(Membership::Limited) && rule.manager == Some(Membership::Full);
        let named = rule.name == "Default" && !rule.first;
        if !closed
            || !named
            || rule
                .members
                .values()
                .any(|membership| *membership == Membership::Limited)
        {
            return Err(
                "the default partition must be Default=0x7fff without indx0, with ALL=limited, SELF=full and full members"
                    .to_owned(),
            );
        }
        self.partitions.management = rule.members.into_keys().collect::<BTreeSet<_>>();
        Ok(())
    }

    fn finish(self) -> Result<Partitions, String> {
        if !self.default_seen {
            return Err("there is no rule for the default partition".to_owned());
        }
        self.partitions.check().map_err(|error| error.to_string())?;
        Ok(self.partitions)
    }
}
