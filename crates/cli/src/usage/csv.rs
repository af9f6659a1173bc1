//! Tables as CSV (RFC 4180): a header, lines that end with CR LF, quotes around every field with a comma, a quote or a line
//! end.

fn field(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

/// Lines of fields, the header first.
#[derive(Debug)]
pub struct Csv<const N: usize> {
    text: String,
}

impl<const N: usize> Csv<N> {
    pub fn new(header: [&str; N]) -> Self {
        let mut csv = Self { text: String::new() };
        csv.row(header);
        csv
    }

    pub fn row(&mut self, fields: [&str; N]) {
        self.text.push_str(&fields.map(field).join(","));
        self.text.push_str("\r\n");
    }

    /// All lines, without the LF of the last one: the function that writes a line adds it.
    pub fn as_line(&self) -> &str {
        self.text.trim_end_matches('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_have_to_be() {
        let mut csv = Csv::new(["a", "b"]);
        csv.row(["plain text", ""]);
        csv.row(["Acme, Inc.", "the \"best\"\nof all"]);
        assert_eq!(
            csv.as_line(),
            "a,b\r\nplain text,\r\n\"Acme, Inc.\",\"the \"\"best\"\"\nof all\"\r"
        );
    }
}
