//! Lines at the bottom of a terminal that are redrawn, and their progress bar.

use console::{Term, truncate_str};
use rackwright_api::v1::Progress;

use crate::units;

/// A block of lines that the next drawing replaces. Without a terminal nothing is drawn.
#[derive(Debug)]
pub struct Live {
    term: Option<Term>,
    drawn: usize,
}

impl Live {
    /// Draws on `term` if `enabled`; otherwise draws nothing.
    pub fn new(term: Term, enabled: bool) -> Self {
        Self {
            term: enabled.then_some(term),
            drawn: 0,
        }
    }

    /// Whether drawings are shown.
    pub fn enabled(&self) -> bool {
        self.term.is_some()
    }

    /// Rows and columns of the terminal; 1000 of each without a terminal.
    pub fn size(&self) -> (usize, usize) {
        self.term.as_ref().map_or((1000, 1000), |term| {
            let (rows, columns) = term.size();
            (usize::from(rows), usize::from(columns))
        })
    }

    /// Replaces the previous drawing. If there are more lines than rows, the last lines are left out.
    pub fn draw(&mut self, lines: &[String]) {
        let (rows, columns) = self.size();
        let Some(term) = &self.term else { return };
        let fitting = &lines[..lines.len().min(rows.saturating_sub(1))];
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in fitting {
            text.push_str(&truncate_str(line, columns, "…"));
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        // A failed write is ignored: the result of the command does not depend on the drawing.
        let _ = term.write_str(&text);
        self.drawn = fitting.len();
    }

    /// Removes the block.
    pub fn clear(&mut self) {
        if self.drawn > 0 {
            self.draw(&[]);
        }
    }
}

/// `[#########-----------]  45%`
pub fn bar(percent: u32) -> String {
    let percent = percent.min(100);
    let full = percent as usize / 5;
    format!("[{}{}] {percent:>3}%", "#".repeat(full), "-".repeat(20 - full))
}

/// Bytes, rate and remaining time of a step that moves bytes; empty for other steps.
pub fn amounts(progress: &Progress) -> String {
    if progress.logical_bytes_total == 0 {
        return String::new();
    }
    let mut text = format!(
        "{} of {}",
        units::bytes(progress.logical_bytes),
        units::bytes(progress.logical_bytes_total)
    );
    if progress.bytes_per_second > 0 {
        let left = progress.logical_bytes_total.saturating_sub(progress.logical_bytes);
        let seconds = left as f64 / progress.bytes_per_second as f64;
        text.push_str(&format!(
            ", {}/s, {} left",
            units::bytes(progress.bytes_per_second),
            units::duration(seconds)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_a_constant_width() {
        assert_eq!(bar(0), "[--------------------]   0%");
        assert_eq!(bar(45), "[#########-----------]  45%");
        assert_eq!(bar(100), "[####################] 100%");
        assert_eq!(bar(u32::MAX), bar(100));
    }

    #[test]
    fn amounts_show_rate_and_time_left() {
        let mut progress = Progress {
            logical_bytes: 1_000_000_000,
            logical_bytes_total: 4_000_000_000,
            ..Default::default()
        };
        assert_eq!(amounts(&progress), "1.0 GB of 4.0 GB");
        progress.bytes_per_second = 300_000_000;
        assert_eq!(amounts(&progress), "1.0 GB of 4.0 GB, 300.0 MB/s, 10.0 s left");
        assert_eq!(amounts(&Progress::default()), "");
    }

    #[test]
    fn without_a_terminal_nothing_is_drawn() {
        let mut live = Live::new(Term::stderr(), false);
        live.draw(&["x".to_owned()]);
        assert_eq!(live.drawn, 0);
    }
}
