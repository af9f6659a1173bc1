//! The escape that ends a console, as in OpenSSH: `~.` at the beginning of a line. `~~` types one `~`.

/// The result of some keys.
#[derive(Debug, PartialEq, Eq)]
pub enum Keys {
    /// To be sent.
    Type(Vec<u8>),
    /// To be sent, and then the console ends.
    Leave(Vec<u8>),
    /// To be sent, and help is requested.
    Help(Vec<u8>),
}

/// The position of the input in its line.
#[derive(Debug, Default)]
pub struct Escape {
    place: Place,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Begin,
    Tilde,
    Within,
}

impl Escape {
    /// Reads keys. Keys after `~.` are dropped.
    pub fn read(&mut self, keys: &[u8]) -> Keys {
        let mut typed = Vec::with_capacity(keys.len() + 1);
        let mut wants_help = false;
        for key in keys {
            match (self.place, key) {
                (Place::Begin, b'~') => {
                    self.place = Place::Tilde;
                    continue;
                }
                (Place::Tilde, b'.') => return Keys::Leave(typed),
                (Place::Tilde, b'?') => {
                    wants_help = true;
                    self.place = Place::Begin;
                    continue;
                }
                (Place::Tilde, b'~') => {}
                (Place::Tilde, _) => typed.push(b'~'),
                _ => {}
            }
            typed.push(*key);
            self.place = if matches!(key, b'\r' | b'\n') {
                Place::Begin
            } else {
                Place::Within
            };
        }
        if wants_help {
            Keys::Help(typed)
        } else {
            Keys::Type(typed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_counts_at_the_beginning_of_a_line_alone() {
        for (keys, typed, leaves) in [
            ("ls\r", "ls\r", false),
            ("~.", "", true),
            ("ls\r~.rest", "ls\r", true),
            ("a~.", "a~.", false),
            ("~~.", "~.", false),
            ("~x", "~x", false),
            ("\n~\r", "\n~\r", false),
        ] {
            let expected = typed.as_bytes().to_vec();
            let whole = Escape::default().read(keys.as_bytes());
            assert_eq!(
                whole,
                if leaves {
                    Keys::Leave(expected.clone())
                } else {
                    Keys::Type(expected.clone())
                },
                "{keys:?}"
            );
            // The same key by key, as a terminal delivers them.
            let (mut escape, mut all, mut left) = (Escape::default(), Vec::new(), false);
            for key in keys.as_bytes() {
                match escape.read(&[*key]) {
                    Keys::Type(typed) | Keys::Help(typed) => all.extend(typed),
                    Keys::Leave(typed) => {
                        all.extend(typed);
                        left = true;
                        break;
                    }
                }
            }
            assert_eq!((all, left), (expected, leaves), "{keys:?}");
        }
        assert_eq!(Escape::default().read(b"~?"), Keys::Help(Vec::new()));
    }
}
