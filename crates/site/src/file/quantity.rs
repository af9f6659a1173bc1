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
    /// Suffixes in lower case, with their factors.
    fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::None => &[],
            Self::Watts => &[("w", 1.0), ("kw", 1e3), ("mw", 1e6)],
            Self::Volts => &[("v", 1.0), ("kv", 1e3)],
            Self::Amps => &[("a", 1.0), ("ka", 1e3)],
            Self::Kilograms => &[("kg", 1.0), ("t", 1e3)],
            Self::LitresPerMinute => &[("l/min", 1.0), ("lpm", 1.0)],
            Self::LitresPerMinutePerKw => &[("l/min/kw", 1.0), ("lpm/kw", 1.0)],
            Self::Celsius => &[("c", 1.0), ("°c", 1.0)],
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
}

/// The number in the base unit. Always finite.
///
/// # Errors
/// The fault, and the fix.
pub(crate) fn parse(text: &str, unit: Unit) -> Result<f64, (String, String)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(i, c)| {
            let exponent =
                matches!(c, 'e' | 'E') && text[i + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '-');
            !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+') || exponent)
        })
        .map_or(text.len(), |(i, _)| i);
    let (number, suffix) = text.split_at(end);
    let fix = || match unit {
        Unit::None => "write a number".to_owned(),
        _ => format!("write a number, in {}", unit.words()),
    };
    let Some(number) = number.parse::<f64>().ok().filter(|n| n.is_finite()) else {
        return Err((format!("`{text}` is not a number"), fix()));
    };
    let suffix = suffix.trim().to_lowercase();
    if suffix.is_empty() {
        return Ok(number);
    }
    let factor = unit.suffixes().iter().find(|(name, _)| *name == suffix);
    match factor.map(|(_, factor)| number * factor) {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err((format!("`{text}` is too large"), fix())),
        None => Err((format!("`{text}` has the wrong unit"), fix())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_converted_and_wrong_ones_told() {
        assert_eq!(parse("34.5 kW", Unit::Watts), Ok(34_500.0));
        assert_eq!(parse("34500", Unit::Watts), Ok(34_500.0));
        assert_eq!(parse("1.5t", Unit::Kilograms), Ok(1500.0));
        assert_eq!(parse("-5 °C", Unit::Celsius), Ok(-5.0));
        assert_eq!(parse("3e2L/min", Unit::LitresPerMinute), Ok(300.0));
        assert_eq!(
            parse("41 kVA", Unit::Watts),
            Err((
                "`41 kVA` has the wrong unit".into(),
                "write a number, in W, kW or MW".into()
            ))
        );
        for text in [
            "", "x", "nan", "inf", "1e999", "--1", "1.2.3", ".", "1e308 MW", "éé", "1eé",
        ] {
            assert!(parse(text, Unit::Watts).is_err(), "{text}");
        }
        assert!(parse("3 kW", Unit::None).is_err());
    }
}
