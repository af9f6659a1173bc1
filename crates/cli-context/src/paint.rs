//! Colours of the text for people.

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Busy,
    Bad,
    Dim,
    Strong,
}

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    /// Without colours.
    pub const PLAIN: Self = Self(false);

    /// The text in the colour of its meaning.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Busy => "33",
            Tone::Bad => "1;31",
            Tone::Dim => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_can_be_off() {
        assert_eq!(Paint::PLAIN.tone(Tone::Bad, "x"), "x");
        assert_eq!(Paint(true).tone(Tone::Good, "x"), "\x1b[32mx\x1b[0m");
    }
}
