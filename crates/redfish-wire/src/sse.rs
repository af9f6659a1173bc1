//! `text/event-stream`, as browsers read it (WHATWG HTML, "Interpreting an event stream"), with limits: the sender is a
//! BMC and may send anything.

/// Longest line, in bytes.
const LINE_BYTES: usize = 256 << 10;
/// Most data of one message, in bytes.
const DATA_BYTES: usize = 1 << 20;
/// Longest id that is stored.
const ID_BYTES: usize = 256;

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The id for resuming the stream after this message.
    pub id: Option<String>,
    /// The content of the message.
    pub data: String,
}

/// A line or a message exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Parses a stream, in pieces of any size.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it does not end another line.
    after_return: bool,
    is_begun: bool,
    data: String,
    has_data: bool,
    id: Option<String>,
}

impl Parser {
    /// Takes the next piece and returns the messages that it completes.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Message>, TooLong> {
        let mut complete = Vec::new();
        for byte in piece {
            let ends = matches!(byte, b'\n' | b'\r');
            let is_second = *byte == b'\n' && std::mem::take(&mut self.after_return);
            self.after_return = *byte == b'\r';
            if is_second {
                continue;
            }
            if !ends {
                if self.line.len() >= LINE_BYTES {
                    return Err(TooLong);
                }
                self.line.push(*byte);
                continue;
            }
            complete.extend(self.end_line()?);
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Result<Option<Message>, TooLong> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = &*text;
        if !std::mem::replace(&mut self.is_begun, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.end_message());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.data.len() + value.len() >= DATA_BYTES {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // The id is later sent as a header, so it must be a valid header value.
            "id" if value.len() <= ID_BYTES && value.bytes().all(|b| (0x20..0x7f).contains(&b)) => {
                self.id = (!value.is_empty()).then(|| value.to_owned());
            }
            // Comments, which keep the connection alive, and unused fields.
            _ => {}
        }
        Ok(None)
    }

    fn end_message(&mut self) -> Option<Message> {
        let data = std::mem::take(&mut self.data);
        std::mem::take(&mut self.has_data).then(|| Message {
            id: self.id.clone(),
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: Option<&str>, data: &str) -> Message {
        Message {
            id: id.map(str::to_owned),
            data: data.to_owned(),
        }
    }

    #[test]
    fn a_stream_reads_the_same_however_it_is_cut() {
        let text = "\u{feff}: hello\nretry: 5\nid: 1\nevent: x\ndata: {\"Ä\":\ndata: 1}\n\n\nid:2\r\ndata:second\r\n\r\n\
                    data: third\r\rdata\n\ndata: cut off\n";
        let expected = [
            message(Some("1"), "{\"Ä\":\n1}"),
            message(Some("2"), "second"),
            message(Some("2"), "third"),
            message(Some("2"), ""),
        ];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let pieces = text.as_bytes().chunks(size);
            let messages: Vec<_> = pieces.flat_map(|piece| parser.feed(piece).unwrap()).collect();
            assert_eq!(messages, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused_and_not_kept() {
        let mut endless = Parser::default();
        let fed = (0..1000).try_for_each(|_| endless.feed(&[b'x'; 4096]).map(drop));
        assert_eq!(fed, Err(TooLong));
        assert!(endless.line.len() <= LINE_BYTES);
        let mut many = Parser::default();
        let line = format!("data: {}\n", "y".repeat(4000));
        let fed = (0..1000).try_for_each(|_| many.feed(line.as_bytes()).map(drop));
        assert_eq!(fed, Err(TooLong));
        assert!(many.data.len() <= DATA_BYTES);
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut parser = Parser::default();
        let messages = parser.feed(b"id: a\x01b\ndata: \xff\xc3\n\n").unwrap();
        assert_eq!(messages, [message(None, "\u{fffd}\u{fffd}")]);
        let long_id = format!("id: {}\ndata: z\n\n", "i".repeat(1000));
        assert_eq!(parser.feed(long_id.as_bytes()).unwrap(), [message(None, "z")]);
        assert_eq!(parser.feed(&[0; 100]).unwrap(), []);
    }
}
