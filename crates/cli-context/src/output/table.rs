//! Narrow tables without borders: columns two spaces apart, one header line, easy to process with `awk`.

use console::{measure_text_width, truncate_str};

use super::{Paint, Tone, clean};

/// The text of an empty cell.
const EMPTY: &str = "-";

/// One cell: text of any origin, made safe, with an optional colour.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    pub fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Self {
            tone: Some(tone),
            ..Self::from(text.as_ref())
        }
    }

    /// The text; none for an empty cell.
    pub fn value(&self) -> Option<&str> {
        (self.text != EMPTY).then_some(self.text.as_str())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        let text = clean(text);
        Self {
            text: if text.is_empty() { EMPTY.to_owned() } else { text },
            tone: None,
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

/// Rows under a header. An empty cell shows `-`.
#[derive(Debug)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// A table without a header line, for `name  value` pairs.
    pub fn pairs() -> Self {
        Self::new(&[])
    }

    pub fn indented(mut self, columns: usize) -> Self {
        self.indent = columns;
        self
    }

    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) -> &mut Self {
        self.cells(cells.into())
    }

    /// A row with any number of cells.
    pub fn cells(&mut self, cells: Vec<Cell>) -> &mut Self {
        self.rows.push(cells);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table's lines. With a `width`, longer lines are cut at the end with `…`.
    pub fn render(&self, paint: Paint, width: Option<usize>) -> String {
        let widths = self.widths();
        let mut out = String::new();
        if !self.header.is_empty() {
            let cells: Vec<Cell> = self.header.iter().map(|text| Cell::toned(text, Tone::Dim)).collect();
            self.push_line(&mut out, &cells, &widths, paint, width);
        }
        for row in &self.rows {
            self.push_line(&mut out, row, &widths, paint, width);
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self
            .rows
            .iter()
            .map(Vec::len)
            .chain([self.header.len()])
            .max()
            .unwrap_or(0);
        let mut widths = vec![0; columns];
        for (column, text) in self.header.iter().enumerate() {
            widths[column] = measure_text_width(text);
        }
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                widths[column] = widths[column].max(measure_text_width(&cell.text));
            }
        }
        widths
    }

    fn push_line(&self, out: &mut String, cells: &[Cell], widths: &[usize], paint: Paint, limit: Option<usize>) {
        let mut line = " ".repeat(self.indent);
        for (column, cell) in cells.iter().enumerate() {
            let text = match cell.tone {
                Some(tone) => paint.tone(tone, &cell.text),
                None => cell.text.clone(),
            };
            line.push_str(&text);
            if column + 1 < cells.len() {
                let missing = widths[column].saturating_sub(measure_text_width(&cell.text));
                line.push_str(&" ".repeat(missing + 2));
            }
        }
        match limit {
            Some(limit) => out.push_str(&truncate_str(&line, limit, "…")),
            None => out.push_str(&line),
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = Table::new(&["NAME", "STATE", "WHY"]);
        table.row(["gpu-001".into(), Cell::toned("active", Tone::Good), "".into()]);
        table.row(["g".into(), "imaging".into(), "writing\nthe image".into()]);
        assert_eq!(
            table.render(Paint::PLAIN, None),
            "NAME     STATE    WHY\ngpu-001  active   -\ng        imaging  writing the image\n"
        );
        let painted = table.render(Paint(true), None);
        assert!(painted.contains("\x1b[32mactive\x1b[0m   -"), "{painted}");
    }

    #[test]
    fn long_lines_are_cut_to_the_terminal() {
        let mut table = Table::pairs().indented(2);
        table.row(["a".into(), "0123456789".into()]);
        assert_eq!(table.render(Paint::PLAIN, Some(10)), "  a  0123…\n");
    }
}
