//! Numbers with units, such as `34.5 kW` for a field in watts.

/// The unit of a field. A number without a suffix has this unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    None,
    Watts,
    Volts,
    Amps,
    Kilograms,
    LitresPerMinute,
    LitresPerMinutePerKw,
    Celsius,
}

impl Unit {
    /// Suffixes with their factors, the usual one first.
    fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::None => &[],
            Self::Watts => &[("W", 1.0), ("kW", 1e3), ("MW", 1e6)],
            Self::Volts => &[("V", 1.0), ("kV", 1e3)],
            Self::Amps => &[("A", 1.0), ("kA", 1e3)],
            Self::Kilograms => &[("kg", 1.0), ("t", 1e3)],
            Self::LitresPerMinute => &[("L/min", 1.0), ("l/min", 1.0), ("lpm", 1.0), ("LPM", 1.0)],
            Self::LitresPerMinutePerKw => &[("L/min/kW", 1.0), ("l/min/kW", 1.0), ("lpm/kW", 1.0), ("LPM/kW", 1.0)],
            Self::Celsius => &[("°C", 1.0), ("C", 1.0)],
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::None => "a number without unit",
            Self::Watts => "W, kW or MW",
            Self::Volts => "V or kV",
            Self::Amps => "A or kA",
            Self::Kilograms => "kg or t",
            Self::LitresPerMinute => "L/min",
            Self::LitresPerMinutePerKw => "L/min/kW",
            Self::Celsius => "°C",
        }
    }

    /// A number with the unit of the field.
    pub(crate) fn number(self, number: f64) -> String {
        match self.suffixes().first() {
            Some((base, _)) => format!("{number} {base}"),
            None => number.to_string(),
        }
    }
}

/// A number with a unit, as read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quantity {
    /// The number in the base unit. Always finite.
    pub value: f64,
    /// The text with the letters of the unit in their right case, if the file has another case.
    pub spelling: Option<String>,
}

/// Parses a number with or without a unit.
///
/// # Errors
/// The fault, and the fix.
pub(crate) fn parse(text: &str, unit: Unit) -> Result<Quantity, (String, String)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(i, c)| {
            let exponent =
                matches!(c, 'e' | 'E') && text[i + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '-');
            !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+') || exponent)
        })
        .map_or(text.len(), |(i, _)| i);
    let (digits, suffix) = text.split_at(end);
    let suffix = suffix.trim();
    let fix = || match unit {
        Unit::None => "write a number without a unit".to_owned(),
        _ => format!("write a number, in {}", unit.words()),
    };
    if suffix.starts_with([',', '_', '\'']) {
        let fix = format!("{}; the number has only digits and a point, as in 20.5", fix());
        return Err((format!("`{text}` is not a number"), fix));
    }
    let Some(number) = digits.parse::<f64>().ok().filter(|n| n.is_finite()) else {
        return Err((format!("`{text}` is not a number"), fix()));
    };
    if suffix.is_empty() {
        return Ok(Quantity {
            value: number,
            spelling: None,
        });
    }
    let known = unit.suffixes();
    let lower = suffix.to_lowercase();
    let exact = known.iter().find(|(name, _)| *name == suffix);
    let Some((name, factor)) = exact.or_else(|| known.iter().find(|(name, _)| name.to_lowercase() == lower)) else {
        let fix = match (unit, suffix) {
            (Unit::None, "%") => format!("write the share as a number, here {}", number / 100.0),
            _ => fix(),
        };
        return Err((format!("`{text}` has the wrong unit"), fix));
    };
    let value = number * factor;
    if !value.is_finite() {
        return Err((format!("`{text}` is too large"), fix()));
    }
    let spelling = exact.is_none().then(|| format!("{digits} {name}"));
    Ok(Quantity { value, spelling })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_converted_and_wrong_ones_named() {
        let right = |text, unit, value| {
            let spelling = None;
            assert_eq!(parse(text, unit), Ok(Quantity { value, spelling }), "{text}");
        };
        right("34.5 kW", Unit::Watts, 34_500.0);
        right("34500", Unit::Watts, 34_500.0);
        right("1.5t", Unit::Kilograms, 1500.0);
        right("-5 °C", Unit::Celsius, -5.0);
        right("3e2L/min", Unit::LitresPerMinute, 300.0);
        right("300 l/min", Unit::LitresPerMinute, 300.0);
        assert_eq!(
            parse("41 kVA", Unit::Watts),
            Err((
                "`41 kVA` has the wrong unit".into(),
                "write a number, in W, kW or MW".into()
            ))
        );
        for (text, unit, spelling) in [
            ("20 kw", Unit::Watts, "20 kW"),
            ("1.5KW", Unit::Watts, "1.5 kW"),
            ("2 mw", Unit::Watts, "2 MW"),
            ("415 v", Unit::Volts, "415 V"),
            ("3 L/MIN/KW", Unit::LitresPerMinutePerKw, "3 L/min/kW"),
        ] {
            let read = parse(text, unit).unwrap();
            assert_eq!(read.spelling.as_deref(), Some(spelling), "{text}");
            assert_eq!(Ok(read.value), parse(spelling, unit).map(|right| right.value), "{text}");
        }
        for text in ["20,5 kW", "1_000", "1'000 W"] {
            let (what, fix) = parse(text, Unit::Watts).unwrap_err();
            assert_eq!(what, format!("`{text}` is not a number"));
            assert_eq!(
                fix,
                "write a number, in W, kW or MW; the number has only digits and a point, as in 20.5"
            );
        }
        for text in [
            "", "x", "nan", "inf", "1e999", "--1", "1.2.3", ".", "1e308 MW", "éé", "1eé",
        ] {
            assert!(parse(text, Unit::Watts).is_err(), "{text}");
        }
        let (_, fix) = parse("3 kW", Unit::None).unwrap_err();
        assert_eq!(fix, "write a number without a unit");
        let (_, fix) = parse("80 %", Unit::None).unwrap_err();
        assert_eq!(fix, "write the share as a number, here 0.8");
    }
}
