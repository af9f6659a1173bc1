//! The kernel's log: the lines that may concern a component.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

use rackwright_health::facts::Row;

use crate::root::Root;

/// Most lines that are reported.
const LINES_MAX: usize = 400;
/// Most bytes of a fixture, and of one record of the kernel (`Documentation/ABI/testing/dev-kmsg`).
const FILE_MAX: u64 = 4 << 20;
const RECORD_MAX: usize = 8192;
/// A line with none of these concerns no component. The control plane decides.
const WORDS: [&str; 11] = [
    "Xid (",
    "SXid (",
    "NVRM: GPU",
    "mlx5",
    "nvme",
    "EDAC",
    "[Hardware Error]",
    "PCIe Bus Error",
    "pciehp",
    "clock throttled",
    "medium error",
];

pub(crate) fn rows(root: &Root) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for record in records(root).map_err(|error| format!("/dev/kmsg: {error}"))? {
        // `6,339,5140900,-;message`, then lines with a space before them.
        let Some((head, text)) = record.split_once(';') else {
            continue;
        };
        let text = text.lines().next().unwrap_or_default();
        if !WORDS.iter().any(|word| text.contains(word)) {
            continue;
        }
        if rows.len() == LINES_MAX {
            rows.push(Row::new("log_cut"));
            break;
        }
        let mut numbers = head.split(',');
        // The priority has the facility in its upper bits; kernel messages have facility 0.
        let priority = numbers.next().and_then(|number| number.parse::<u32>().ok());
        let at_us = numbers.nth(1).and_then(|number| number.parse::<u64>().ok());
        rows.push(
            Row::new("log")
                .with_some("priority", priority.map(|priority| priority & 7))
                .with_some("at_s", at_us.map(|at| at / 1_000_000))
                .with("text", text),
        );
    }
    Ok(rows)
}

/// The records of `/dev/kmsg`; of a fixture, one a line.
fn records(root: &Root) -> io::Result<Vec<String>> {
    let path = root.at("dev/kmsg");
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.file_type().is_char_device() {
        return read_records(&mut file);
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn read_records(file: &mut File) -> io::Result<Vec<String>> {
    let mut records = Vec::new();
    let mut buffer = vec![0; RECORD_MAX];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(records),
            Ok(count) => records.push(String::from_utf8_lossy(&buffer[..count]).into_owned()),
            // The end of the log so far.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(records),
            // The kernel overwrote a record that was not read yet; the next read returns a later one.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
