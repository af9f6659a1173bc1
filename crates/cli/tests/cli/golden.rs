//! Recorded scripts: command, output and exit code, compared with a file.

use std::path::PathBuf;

use crate::program::{Finished, Program};

/// Commands and their results.
#[derive(Default)]
pub struct Script {
    text: String,
}

impl Script {
    /// Runs a command and records it.
    pub fn run(&mut self, program: &Program, arguments: &[&str]) -> Finished {
        let finished = program.run(arguments);
        self.record(&format!("rackwright {}", arguments.join(" ")), &finished);
        finished
    }

    pub fn record(&mut self, title: &str, finished: &Finished) {
        self.text.push_str(&format!("$ {title}\n{}", finished.stdout));
        for line in finished.stderr.lines() {
            self.text.push_str(&format!("! {line}\n"));
        }
        self.text.push_str(&format!("= {}\n\n", finished.code));
    }

    /// Compares with `tests/golden/NAME.txt`, or writes that file with `UPDATE_GOLDEN=1`.
    #[track_caller]
    pub fn check(self, name: &str, program: &Program) {
        let seen = normalise(&self.text.replace(program.home().to_str().unwrap(), "<home>"));
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
            std::fs::write(&path, &seen).unwrap();
            return;
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        if seen != wanted {
            panic!(
                "{} differs (UPDATE_GOLDEN=1 records it again)\n--- wanted\n{wanted}\n--- seen\n{seen}",
                path.display()
            );
        }
    }
}

/// Replaces values that differ from run to run: times, ports, random ids, digests.
fn normalise(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let found = if before.is_ascii_alphanumeric() {
            None
        } else {
            PATTERNS
                .iter()
                .find_map(|(pattern, name)| matches(pattern, rest).map(|length| (length, *name)))
        };
        match found {
            Some((length, name)) => {
                out.push_str(name);
                before = 'x';
                rest = &rest[length..];
            }
            None => {
                out.push(c);
                before = c;
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// `9` means a digit, `#` one or more digits, `~` a hex digit, `%` 64 of them; other characters mean themselves.
const PATTERNS: &[(&str, &str)] = &[
    ("9999-99-99T99:99:99.#Z", "<time>"),
    ("9999-99-99T99:99:99Z", "<time>"),
    ("127.0.0.1:#", "127.0.0.1:<port>"),
    ("~~~~~~~~-~~~~-4~~~-~~~~-~~~~~~~~~~~~", "<uuid>"),
    ("sha256:%", "sha256:<digest>"),
    ("#.9 s", "<t>"),
    ("#m 99s", "<t>"),
    ("#h 99m", "<t>"),
    ("#.9 MB/s", "<rate>"),
    ("#.9 kB/s", "<rate>"),
    ("#.9 GB/s", "<rate>"),
];

fn matches(pattern: &str, text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    for wanted in pattern.bytes() {
        let run = |from: usize, test: fn(&u8) -> bool| bytes[from..].iter().take_while(|b| test(b)).count();
        at += match wanted {
            b'9' => bytes.get(at).filter(|b| b.is_ascii_digit()).map(|_| 1)?,
            b'~' => bytes.get(at).filter(|b| b.is_ascii_hexdigit()).map(|_| 1)?,
            b'#' => Some(run(at, u8::is_ascii_digit)).filter(|count| *count > 0)?,
            b'%' => Some(run(at, u8::is_ascii_hexdigit)).filter(|count| *count == 64)?,
            other => bytes.get(at).filter(|b| **b == other).map(|_| 1)?,
        };
    }
    let ends = !bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    ends.then_some(at)
}

#[test]
fn values_that_change_between_runs_are_replaced() {
    let uuid = "0b6d7f0e-1111-4222-8333-444455556666";
    let text = format!("at 2026-01-02T03:04:05Z from 127.0.0.1:4711 id {uuid} in 12.3 s, 1m 23s; gpu-001 3m");
    assert_eq!(
        normalise(&text),
        "at <time> from 127.0.0.1:<port> id <uuid> in <t>, <t>; gpu-001 3m"
    );
}
