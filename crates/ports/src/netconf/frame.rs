//! The two framings of NETCONF over SSH (RFC 6242, section 4): an end mark after each message, or chunks with their length.

use std::fmt::Write as _;

/// The end of a message in the framing of NETCONF 1.0.
const END: &[u8] = b"]]>]]>";
/// Maximum length of a chunk's header: `\n#`, ten digits, `\n`.
const HEADER_BYTES: usize = 13;

/// Adds the framing to a message.
pub(crate) fn frame(message: &str, is_chunked: bool) -> String {
    let mut framed = String::with_capacity(message.len() + 32);
    if is_chunked {
        let _: Result<(), _> = write!(framed, "\n#{}\n{message}\n##\n", message.len());
    } else {
        framed.push_str(message);
        framed.push_str("]]>]]>");
    }
    framed
}

/// Finds the messages in the bytes that were received. Each byte is examined once, or six times at the most.
#[derive(Debug, Default)]
pub(crate) struct Deframer {
    /// Bytes that are not yet part of a message.
    pub(crate) buffer: Vec<u8>,
    /// With the framing of 1.0: so many bytes of the buffer contain no end mark.
    searched: usize,
    /// With chunks: the message so far.
    message: Vec<u8>,
    /// With chunks: the missing bytes of the present chunk.
    missing: usize,
    /// With chunks: the message has at least one chunk.
    has_chunk: bool,
}

impl Deframer {
    /// The next message, if it is complete.
    ///
    /// # Errors
    /// The bytes have no valid framing.
    pub(crate) fn next(&mut self, is_chunked: bool) -> Result<Option<Vec<u8>>, &'static str> {
        if is_chunked {
            self.next_of_chunks()
        } else {
            Ok(self.next_before_mark())
        }
    }

    /// Whether there are bytes after the last message, other than white space.
    pub(crate) fn has_rest(&self) -> bool {
        !self.message.is_empty() || !self.buffer.iter().all(u8::is_ascii_whitespace)
    }

    fn next_before_mark(&mut self) -> Option<Vec<u8>> {
        let found = self.buffer[self.searched..]
            .windows(END.len())
            .position(|bytes| bytes == END);
        let Some(found) = found else {
            self.searched = self.buffer.len().saturating_sub(END.len() - 1);
            return None;
        };
        let end = self.searched + found;
        let rest = self.buffer.split_off(end + END.len());
        let mut message = std::mem::replace(&mut self.buffer, rest);
        message.truncate(end);
        self.searched = 0;
        Some(message)
    }

    fn next_of_chunks(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        loop {
            let taken = self.missing.min(self.buffer.len());
            self.message.extend(self.buffer.drain(..taken));
            self.missing -= taken;
            if self.missing > 0 {
                return Ok(None);
            }
            let header = &self.buffer[..self.buffer.len().min(HEADER_BYTES)];
            let Some(rest) = header.strip_prefix(b"\n#") else {
                return if b"\n#".starts_with(header) {
                    Ok(None)
                } else {
                    Err("a chunk has no header")
                };
            };
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                return if header.len() < HEADER_BYTES {
                    Ok(None)
                } else {
                    Err("the header of a chunk has no end")
                };
            };
            let words = &rest[..length];
            let size = std::str::from_utf8(words)
                .ok()
                .and_then(|digits| digits.parse::<u32>().ok());
            let is_end = words == b"#";
            let has_length = words.first().is_some_and(|digit| (b'1'..=b'9').contains(digit));
            self.buffer.drain(..length + 3);
            match size.and_then(|size| usize::try_from(size).ok()) {
                _ if is_end && self.has_chunk => {
                    self.has_chunk = false;
                    return Ok(Some(std::mem::take(&mut self.message)));
                }
                Some(size) if has_length => (self.missing, self.has_chunk) = (size, true),
                _ => return Err("the length of a chunk is not valid"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(bytes: &[u8], is_chunked: bool, step: usize) -> Result<Vec<String>, &'static str> {
        let (mut deframer, mut found) = (Deframer::default(), Vec::new());
        for part in bytes.chunks(step) {
            deframer.buffer.extend_from_slice(part);
            while let Some(message) = deframer.next(is_chunked)? {
                found.push(String::from_utf8_lossy(&message).into_owned());
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_are_found_however_their_bytes_arrive() {
        let marked = frame("<a/>", false) + &frame("]]>]]", false) + "rest";
        let chunked = frame("<a/>", true) + "\n#1\nb\n#3\n\n#9\n##\n";
        for step in 1..marked.len() {
            assert_eq!(messages(marked.as_bytes(), false, step).unwrap(), ["<a/>", "]]>]]"]);
            assert_eq!(messages(chunked.as_bytes(), true, step).unwrap(), ["<a/>", "b\n#9"]);
        }
    }

    #[test]
    fn chunks_without_a_valid_length_are_refused() {
        for bad in [
            "x",
            "\n#0\n",
            "\n#01\nx",
            "\n#+1\nx",
            "\n#-1\n",
            "\n#4294967296\n",
            "\n#12345678901",
            "\n##\n",
            "\n#1\nxy",
        ] {
            assert!(messages(bad.as_bytes(), true, 1).is_err(), "{bad:?}");
        }
        assert_eq!(messages(b"\n#4294967295\nx", true, 1).unwrap(), [""; 0]);
    }
}
