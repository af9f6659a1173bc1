//! Rated, seen and least figures of GPUs by SKU.

use std::collections::BTreeMap;
use std::fmt;

use rackwright_pattern::fits_beginning;

use crate::table::{Row, TableError, named, rows};

const FILE: &str = "data/figures.txt";
const TEXT: &str = include_str!("../data/figures.txt");

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FigureKind {
    /// The maker's data sheet.
    Rated,
    /// The best figure that a public source reports for a healthy component.
    Seen,
    /// A component below it is slow.
    Floor,
}

impl fmt::Display for FigureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rated => "rated",
            Self::Seen => "seen",
            Self::Floor => "floor",
        })
    }
}

/// A value with unit and source.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The value; a larger one is better.
    pub value: f64,
    pub unit: String,
    /// Where the value comes from.
    pub source: String,
}

/// The figures of all known SKUs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Pattern of a product's name, and the SKU. A pattern may end in `*`.
    names: Vec<(String, String)>,
    by_sku: BTreeMap<String, BTreeMap<(String, FigureKind), Figure>>,
}

impl Figures {
    /// The embedded figures.
    ///
    /// # Errors
    /// A fault of the file, which the tests exclude.
    pub fn embedded() -> Result<Self, TableError> {
        Self::parse(FILE, TEXT)
    }

    /// Reads figures; `file` is only for messages.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, TableError> {
        let mut figures = Self::default();
        for row in rows(file, text) {
            if row.fields.first() == Some(&"name") {
                let [_, sku, pattern] = row.exactly()?;
                figures.names.push((pattern.to_owned(), sku.to_owned()));
            } else {
                figures.add(&row)?;
            }
        }
        Ok(figures)
    }

    fn add(&mut self, row: &Row<'_>) -> Result<(), TableError> {
        let [sku, name, kind, value, unit, source] = row.exactly()?;
        let kinds = [FigureKind::Rated, FigureKind::Seen, FigureKind::Floor];
        let kind = named(row, "kind of figure", &kinds, kind)?;
        let value: f64 = value
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite() && *value > 0.0)
            .ok_or_else(|| row.wrong(format!("the value {value:?} is not a number above 0")))?;
        if unit.is_empty() || source.is_empty() {
            return Err(row.wrong("the unit or the source is missing".to_owned()));
        }
        if !self.names.iter().any(|(_, known)| known == sku) {
            return Err(row.wrong(format!("the SKU {sku:?} has no row `name` above")));
        }
        let figure = Figure {
            value,
            unit: unit.to_owned(),
            source: source.to_owned(),
        };
        let of_sku = self.by_sku.entry(sku.to_owned()).or_default();
        match of_sku.insert((name.to_owned(), kind), figure) {
            None => Ok(()),
            Some(_) => Err(row.wrong(format!("the {kind} figure {name} of {sku} is there twice"))),
        }
    }

    /// The SKU of a product, by the name that its driver reports.
    #[must_use]
    pub fn sku_of(&self, product: &str) -> Option<&str> {
        let mut names = self.names.iter();
        let name = names.find(|(pattern, _)| fits_beginning(pattern, product));
        name.map(|(_, sku)| sku.as_str())
    }

    /// A figure of a SKU.
    #[must_use]
    pub fn get(&self, sku: &str, name: &str, kind: FigureKind) -> Option<&Figure> {
        self.by_sku.get(sku)?.get(&(name.to_owned(), kind))
    }

    /// All SKUs with the names of their figures.
    pub fn skus(&self) -> impl Iterator<Item = (&str, Vec<(&str, FigureKind, &Figure)>)> {
        self.by_sku.iter().map(|(sku, figures)| {
            let figures = figures
                .iter()
                .map(|((name, kind), figure)| (name.as_str(), *kind, figure));
            (sku.as_str(), figures.collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_figures_are_ordered_and_complete() {
        let figures = Figures::embedded().unwrap();
        let skus: Vec<&str> = figures.skus().map(|(sku, _)| sku).collect();
        assert_eq!(skus, ["b200", "gb200", "gb300", "h100", "h200", "l40s", "mi300x"]);
        for (sku, all) in figures.skus() {
            for needed in ["memory-bandwidth", "bf16", "power-limit"] {
                assert!(figures.get(sku, needed, FigureKind::Rated).is_some(), "{sku} {needed}");
            }
            for (name, kind, figure) in all {
                let of = |kind| figures.get(sku, name, kind);
                let below = |low: FigureKind, high: FigureKind| match (of(low), of(high)) {
                    (Some(low), Some(high)) => low.value <= high.value && low.unit == high.unit,
                    _ => true,
                };
                assert!(below(FigureKind::Floor, FigureKind::Seen), "{sku} {name} {kind}");
                assert!(below(FigureKind::Seen, FigureKind::Rated), "{sku} {name} {kind}");
                assert!(below(FigureKind::Floor, FigureKind::Rated), "{sku} {name} {kind}");
                assert!(figure.source.len() > 8, "{sku} {name} {kind}");
            }
        }
    }

    #[test]
    fn products_are_known_by_their_drivers_name() {
        let figures = Figures::embedded().unwrap();
        for (product, sku) in [
            ("NVIDIA H100 80GB HBM3", Some("h100")),
            ("NVIDIA H200", Some("h200")),
            ("NVIDIA GB200", Some("gb200")),
            ("NVIDIA L40S", Some("l40s")),
            // The PCIe card has other figures than the SXM module.
            ("NVIDIA H100 PCIe", None),
            ("NVIDIA L40", None),
        ] {
            assert_eq!(figures.sku_of(product), sku, "{product}");
        }
    }

    #[test]
    fn a_fault_is_reported_with_its_line() {
        let name = "name | x | X*\n";
        for (rows, words) in [
            ("x | bf16 | rated | 1 | TFLOPS", "5 fields instead of 6"),
            (
                "x | bf16 | best | 1 | TFLOPS | sheet",
                "no kind of figure \"best\"; use one of rated, seen, floor",
            ),
            ("x | bf16 | rated | fast | TFLOPS | sheet", "\"fast\" is not a number"),
            ("x | bf16 | rated | 1 | | sheet", "unit or the source is missing"),
            ("y | bf16 | rated | 1 | TFLOPS | sheet", "no row `name`"),
            ("# note\nx | a | seen | 1 | W | s\nx | a | seen | 2 | W | s", "twice"),
        ] {
            let error = Figures::parse("f", &format!("{name}{rows}")).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.line, rows.lines().count() + 1, "{error}");
        }
    }
}
