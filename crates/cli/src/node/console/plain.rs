//! A machine's output, as lines that cannot affect the terminal on which they are shown.
//!
//! Escape sequences (ECMA-48) and control characters are left out. A line ends where the cursor is moved, so that the
//! screens of firmware and boot menus stay readable.

/// Longest line; a longer one is broken.
const LINE_MAX: usize = 4096;

/// Converts bytes to lines.
#[derive(Debug, Default)]
pub struct Plain {
    line: Vec<u8>,
    place: Place,
    has_return: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// Within a control sequence: ESC [ ... letter.
    Control,
    /// Within a string for the terminal: ESC ] ... BEL or ESC \.
    String,
    /// After an ESC within such a string.
    StringEnd,
    /// After ESC and a character that is followed by one more.
    One,
}

impl Plain {
    /// Reads bytes; calls `each` with every completed line, without its line end.
    pub fn read(&mut self, bytes: &[u8], each: &mut impl FnMut(&str)) {
        for byte in bytes {
            self.step(*byte, each);
        }
    }

    /// Ends the last line.
    pub fn end(&mut self, each: &mut impl FnMut(&str)) {
        self.break_line(each);
    }

    fn step(&mut self, byte: u8, each: &mut impl FnMut(&str)) {
        self.place = match (self.place, byte) {
            // These end any sequence (ECMA-48: CAN and SUB).
            (_, 0x18 | 0x1a) => Place::Text,
            (Place::Text, 0x1b) => Place::Escape,
            (Place::Text, _) => {
                self.text(byte, each);
                Place::Text
            }
            (Place::Escape | Place::StringEnd, b'[') if self.place == Place::Escape => Place::Control,
            (Place::Escape, b']' | b'P' | b'X' | b'^' | b'_') => Place::String,
            (Place::Escape, b' '..=b'/') => Place::One,
            (Place::Escape, _) => Place::Text,
            (Place::Control, 0x1b) => Place::Escape,
            (Place::Control, b'@'..=b'~') => {
                let moves = matches!(byte, b'H' | b'f' | b'J' | b'A' | b'B' | b'E' | b'F' | b'd');
                if moves && !self.line.is_empty() {
                    self.break_line(each);
                }
                Place::Text
            }
            (Place::Control, _) => Place::Control,
            (Place::String, 0x07) => Place::Text,
            (Place::String, 0x1b) => Place::StringEnd,
            (Place::String, b'\n') => Place::Text,
            (Place::String, _) => Place::String,
            (Place::StringEnd | Place::One, _) => Place::Text,
        };
    }

    fn text(&mut self, byte: u8, each: &mut impl FnMut(&str)) {
        match byte {
            b'\n' => {
                self.has_return = false;
                let text = std::mem::take(&mut self.line);
                each(&shown(&text));
            }
            b'\r' => self.has_return = true,
            0x08 => {
                self.line.pop();
            }
            b'\t' | 0x20..=0x7e | 0x80.. => {
                // The line is overwritten: its old content is also reported.
                if std::mem::take(&mut self.has_return) {
                    self.break_line(each);
                }
                self.line.push(byte);
                if self.line.len() >= LINE_MAX {
                    self.break_line(each);
                }
            }
            _ => {}
        }
    }

    fn break_line(&mut self, each: &mut impl FnMut(&str)) {
        self.has_return = false;
        if !self.line.is_empty() {
            let text = std::mem::take(&mut self.line);
            each(&shown(&text));
        }
    }
}

/// As text: invalid bytes and control characters of the upper half are replaced.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars()
        .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let (mut plain, mut found) = (Plain::default(), Vec::new());
        plain.read(bytes, &mut |line| found.push(line.to_owned()));
        plain.end(&mut |line| found.push(line.to_owned()));
        // Byte by byte the result is the same.
        let (mut plain, mut again) = (Plain::default(), Vec::new());
        for byte in bytes {
            plain.read(&[*byte], &mut |line| again.push(line.to_owned()));
        }
        plain.end(&mut |line| again.push(line.to_owned()));
        assert_eq!(found, again);
        found
    }

    #[test]
    fn escape_sequences_are_left_out() {
        for (bytes, expected) in [
            ("\x1b[0m[ OK ]\x1b[1;32m Started\x1b[0m\r\n", vec!["[ OK ] Started"]),
            ("\x1b]0;owned\x07login: ", vec!["login:"]),
            ("\x1b]0;owned\x1b\\login: ", vec!["login:"]),
            ("\x1bPq#0;2;0;0;0\x1b\\x", vec!["x"]),
            ("\x1b(Bx\x1b)0y", vec!["xy"]),
            (
                "\x1b[2J\x1b[01;01HBdsDxe: loading\x1b[2;1HBoot0001",
                vec!["BdsDxe: loading", "Boot0001"],
            ),
            ("10%\r20%\r30%\r\nend", vec!["10%", "20%", "30%", "end"]),
            ("a\x08b\x07\x00c\n\n", vec!["bc", ""]),
            ("\x1b[31", vec![]),
            ("\x1b]never ended\nnext", vec!["next"]),
        ] {
            assert_eq!(lines(bytes.as_bytes()), expected, "{bytes:?}");
        }
        // C1 controls, as an 8-bit terminal would interpret them, and invalid bytes.
        assert_eq!(lines(b"a\xc2\x9b31mb\xff\n"), ["a\u{fffd}31mb\u{fffd}"]);
        let long = "x".repeat(LINE_MAX + 1);
        assert_eq!(lines(long.as_bytes()).len(), 2);
        assert!(lines(b"\x1b[6n\x1b[c\x1b[21t").is_empty());
    }
}
