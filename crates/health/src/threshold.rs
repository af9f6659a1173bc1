//! The threshold of a figure, and the verdict on a measurement.
//!
//! A threshold is the larger of two values: the floor of the SKU, and the median of like components minus 5 %. Components
//! are alike if SKU, driver and firmware are equal: another driver may be slower for all of them.

use std::fmt;

use crate::rated::Figure;

/// Least number of like components for a median.
pub const FLEET_MIN: usize = 8;
/// The share of the median that a component must reach.
const SHARE_OF_MEDIAN: f64 = 0.95;

/// What makes components comparable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Like {
    /// SKU of the component.
    pub sku: String,
    /// Version of its driver.
    pub driver: String,
    /// Version of its firmware.
    pub firmware: String,
}

/// The figure of one component of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its class.
    pub like: Like,
    pub value: f64,
}

/// Where a threshold comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdSource {
    /// The floor of the SKU.
    Floor {
        /// Source of the floor.
        source: String,
        /// Number of like components, where they are too few for a median. 0: there are enough, or none.
        too_few: usize,
    },
    /// The median of like components.
    Fleet {
        /// Number of like components.
        count: usize,
        /// Their median.
        median: f64,
    },
}

impl fmt::Display for ThresholdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floor { source, too_few: 0 } => write!(f, "floor: {source}"),
            Self::Floor { source, too_few } => {
                write!(
                    f,
                    "floor: {source} ({too_few} like components, {FLEET_MIN} are needed for a median)"
                )
            }
            Self::Fleet { count, median } => write!(f, "median {median} of {count} like components, minus 5 %"),
        }
    }
}

/// The least value of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    pub value: f64,
    pub unit: String,
    /// Where it comes from.
    pub source: ThresholdSource,
}

/// The threshold of a component among a fleet. `None`: there is neither a floor nor a median, so nothing can be proven.
#[must_use]
pub fn threshold(unit: &str, floor: Option<&Figure>, like: &Like, fleet: &[Sample]) -> Option<Threshold> {
    let usable = |sample: &&Sample| sample.like == *like && sample.value.is_finite();
    let mut values: Vec<f64> = fleet.iter().filter(usable).map(|sample| sample.value).collect();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let median = (count >= FLEET_MIN).then(|| {
        let middle = values[count / 2];
        if count.is_multiple_of(2) {
            f64::midpoint(values[count / 2 - 1], middle)
        } else {
            middle
        }
    });
    let of_fleet = median.map(|median| Threshold {
        value: median * SHARE_OF_MEDIAN,
        unit: unit.to_owned(),
        source: ThresholdSource::Fleet { count, median },
    });
    let of_floor = floor.filter(|floor| floor.unit == unit).map(|floor| Threshold {
        value: floor.value,
        unit: unit.to_owned(),
        source: ThresholdSource::Floor {
            source: floor.source.clone(),
            too_few: if median.is_some() { 0 } else { count },
        },
    });
    match (of_floor, of_fleet) {
        (Some(floor), Some(fleet)) => Some(if fleet.value > floor.value { fleet } else { floor }),
        (floor, fleet) => floor.or(fleet),
    }
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// A value in the threshold's unit.
    Value(f64),
    /// The measurement began and did not end well: an error, or a result that is wrong.
    Crashed(String),
    /// There is no measurement.
    Missing(String),
}

/// The verdict on a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The component reaches its threshold.
    Passed,
    /// The component works, and is below its threshold.
    Slow,
    /// The measurement failed on the component.
    Crashed(String),
    /// Nothing was measured, or there is no threshold. This is a failure, never a pass.
    NotProven(String),
}

impl Verdict {
    /// True only for a proven component.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        matches!(self, Self::Passed)
    }
}

/// Judges a measurement.
#[must_use]
pub fn judge(measured: &Measured, threshold: Option<&Threshold>) -> Verdict {
    match (measured, threshold) {
        (Measured::Crashed(why), _) => Verdict::Crashed(why.clone()),
        (Measured::Missing(why), _) => Verdict::NotProven(why.clone()),
        (Measured::Value(value), _) if !value.is_finite() || *value < 0.0 => {
            Verdict::Crashed(format!("the measurement returned {value}"))
        }
        (Measured::Value(_), None) => {
            Verdict::NotProven("there is no floor for this SKU, and too few like components for a median".to_owned())
        }
        (Measured::Value(value), Some(threshold)) if *value >= threshold.value => Verdict::Passed,
        (Measured::Value(_), Some(_)) => Verdict::Slow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(driver: &str) -> Like {
        Like {
            sku: "h100".into(),
            driver: driver.into(),
            firmware: "96.00.74".into(),
        }
    }

    fn fleet(driver: &str, values: &[f64]) -> Vec<Sample> {
        let sample = |value: &f64| Sample {
            like: like(driver),
            value: *value,
        };
        values.iter().map(sample).collect()
    }

    fn floor(value: f64) -> Figure {
        Figure {
            value,
            unit: "TB/s".into(),
            source: "a table".into(),
        }
    }

    #[test]
    fn the_larger_of_floor_and_median_counts() {
        let eight = fleet("570", &[3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0]);
        let of = |floor: f64, fleet: &[Sample]| threshold("TB/s", Some(&self::floor(floor)), &like("570"), fleet);
        let found = of(1.9, &eight).unwrap();
        assert!((found.value - 2.85).abs() < 1e-9, "{found:?}");
        assert_eq!(found.source.to_string(), "median 3 of 8 like components, minus 5 %");
        assert_eq!(of(2.9, &eight).unwrap().value, 2.9);
        // A whole fleet that is slow does not lower the threshold below the floor.
        assert_eq!(of(1.9, &fleet("570", &[1.0; 40])).unwrap().value, 1.9);
        // An even number: between the two in the middle.
        let found = of(0.1, &fleet("570", &[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0])).unwrap();
        assert!((found.value - 1.5 * 0.95).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn only_like_components_count_and_only_eight_of_them() {
        let other = fleet("535", &[9.0; 20]);
        let found = threshold("TB/s", Some(&floor(1.9)), &like("570"), &other).unwrap();
        assert_eq!(
            (found.value, found.source.to_string().as_str()),
            (1.9, "floor: a table")
        );
        let seven = fleet("570", &[9.0; 7]);
        let found = threshold("TB/s", Some(&floor(1.9)), &like("570"), &seven).unwrap();
        assert_eq!(found.value, 1.9);
        assert!(
            found.source.to_string().contains("7 like components"),
            "{}",
            found.source
        );
        assert_eq!(threshold("TB/s", None, &like("570"), &seven), None);
        assert!(threshold("TB/s", None, &like("570"), &fleet("570", &[9.0; 8])).is_some());
        // A floor in another unit is no floor.
        assert_eq!(threshold("GB/s", Some(&floor(1.9)), &like("570"), &seven), None);
    }

    #[test]
    fn slow_crashed_and_missing_are_different_verdicts() {
        let at = threshold("TB/s", Some(&floor(1.9)), &like("570"), &[]);
        let at = at.as_ref();
        assert_eq!(judge(&Measured::Value(1.9), at), Verdict::Passed);
        assert_eq!(judge(&Measured::Value(1.89), at), Verdict::Slow);
        assert_eq!(
            judge(&Measured::Crashed("xid 79".into()), at),
            Verdict::Crashed("xid 79".into())
        );
        assert!(matches!(judge(&Measured::Value(f64::NAN), at), Verdict::Crashed(_)));
        let missing = judge(&Measured::Missing("no library".into()), at);
        assert_eq!(missing, Verdict::NotProven("no library".into()));
        assert!(!missing.is_passed());
        assert!(!judge(&Measured::Value(99.0), None).is_passed());
    }
}
