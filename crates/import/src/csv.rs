//! Comma-separated values as exported by NetBox (RFC 4180). Cells may be quoted and then contain quotes, commas and
//! line breaks.

/// A cell and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Line, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
}

/// The text is not valid CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) what: &'static str,
}

/// Reads row by row and skips empty rows.
pub(crate) struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: u32,
    column: u32,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            rest: text.trim_start_matches('\u{feff}').chars().peekable(),
            line: 1,
            column: 1,
        }
    }

    /// The next row. `None` at the end.
    pub(crate) fn row(&mut self) -> Result<Option<Vec<Cell>>, Broken> {
        while self.rest.peek().is_some() {
            let mut row = Vec::new();
            while !self.cell(&mut row)? {}
            if row.len() > 1 || row.iter().any(|cell| !cell.text.is_empty()) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn broken<T>(&self, what: &'static str) -> Result<T, Broken> {
        Err(Broken {
            line: self.line,
            column: self.column,
            what,
        })
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    /// Reads a cell. Returns true at the end of the row.
    fn cell(&mut self, row: &mut Vec<Cell>) -> Result<bool, Broken> {
        let (line, column) = (self.line, self.column);
        let mut text = String::new();
        let quoted = self.rest.peek() == Some(&'"');
        if quoted {
            self.next();
            self.quoted(&mut text)?;
        }
        loop {
            let end = match self.rest.peek() {
                None | Some('\n') => true,
                Some(',') => false,
                Some('\r') => {
                    self.next();
                    continue;
                }
                Some('"') => return self.broken("a cell that does not begin with a quote contains a quote"),
                Some(_) if quoted => return self.broken("text follows the closing quote of a cell"),
                Some(c) => {
                    text.push(*c);
                    self.next();
                    continue;
                }
            };
            self.next();
            row.push(Cell { text, line, column });
            return Ok(end);
        }
    }

    /// Reads the rest of a quoted cell, without the closing quote.
    fn quoted(&mut self, text: &mut String) -> Result<(), Broken> {
        let begin = (self.line, self.column.saturating_sub(1));
        while let Some(c) = self.next() {
            if c != '"' {
                text.push(c);
            } else if self.rest.peek() == Some(&'"') {
                self.next();
                text.push('"');
            } else {
                return Ok(());
            }
        }
        (self.line, self.column) = begin;
        self.broken("a quote is not closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<Vec<String>>, Broken> {
        let mut reader = Reader::new(text);
        let mut rows = Vec::new();
        while let Some(row) = reader.row()? {
            rows.push(row.into_iter().map(|cell| cell.text).collect());
        }
        Ok(rows)
    }

    #[test]
    fn cells_are_taken_apart() {
        let text = "\u{feff}a,b\r\n\"x, \"\"y\"\"\nz\",\n\n,2\nlast";
        assert_eq!(
            rows(text),
            Ok(vec![
                vec!["a".to_owned(), "b".to_owned()],
                vec!["x, \"y\"\nz".to_owned(), String::new()],
                vec![String::new(), "2".to_owned()],
                vec!["last".to_owned()],
            ])
        );
        let mut reader = Reader::new("a\n\"x\ny\",ü,z");
        assert_eq!(reader.row().map(|row| row.map(|row| row.len())), Ok(Some(1)));
        let row = reader.row().unwrap().unwrap();
        let places: Vec<(u32, u32)> = row.iter().map(|cell| (cell.line, cell.column)).collect();
        assert_eq!(places, [(2, 1), (3, 4), (3, 6)]);
    }

    #[test]
    fn what_is_no_csv_is_told_with_its_place() {
        let broken = |text| rows(text).map_err(|broken| (broken.line, broken.column)).unwrap_err();
        assert_eq!(broken("a\nb,\"c"), (2, 3));
        assert_eq!(broken("a\"b"), (1, 2));
        assert_eq!(broken("\"a\"b"), (1, 4));
    }
}
